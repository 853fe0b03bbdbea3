-- include: indexes timer_alarm slices events
-- Moves are planned first and written at the end, so that a script has read and checked everything before its first
-- write. The order of the writes is such that an error between two of them leaves at most one index entry too many,
-- which readers drop: new index entries, counts, records, and only then the removal of old entries.
if told == nil then ask_for_events() end
local plan = {bucket = {}, first = {}, unbucket = {}, unslice = {}, push = {}, bury = {}, unbury = {}, counts = {}, due = {},
  headers = {}, records = {}, tombs = {}, gone = {}, topics = {}, out = {}, places = {}, push_with = 'RPUSH'}

local function tally(counts, field, n) counts[field] = (counts[field] or 0) + n end
local function count(topic, field, n) tally(under(plan.counts, topic), field, n) end
local function count_due(topic, at, hourly, n) tally(under(plan.due, topic), bin_at(at, hourly), n) end

-- Count jobs that moved from one state to another; `numbers`: how many, by topic.
local function count_moves(numbers, from, to)
  for topic, n in pairs(numbers) do
    count(topic, from, -n)
    count(topic, to, n)
  end
end

local function write_counts()
  for topic, counts in pairs(plan.counts) do
    for field, n in pairs(counts) do
      if n ~= 0 then
        local total = index('HINCRBY', COUNTS .. topic, field, whole(n))
        if field == 'ready' and n < 0 and total == 0 then drop_lists(topic) end
      end
    end
  end
  for topic, bins in pairs(plan.due) do write_bins(topic, bins) end
end

local function write_records()
  local headers, records, tombs, gone = plan.headers, plan.records, plan.tombs, plan.gone
  for at = 1, #headers, 2 do redis.call('SETRANGE', headers[at], '0', headers[at + 1]) end
  if #records > 0 then redis.call('MSET', unpack(records)) end
  for at = 1, #tombs, 3 do redis.call('SET', tombs[at], tombs[at + 1], 'PX', tombs[at + 2]) end
  if #gone > 0 then redis.call('UNLINK', unpack(gone)) end
  local ends = plan.ends
  for at = 1, ends and #ends or 0, 2 do redis.call('PEXPIRE', ends[at], ends[at + 1]) end
end

local function forget_entries()
  for number, ids in pairs(plan.unbucket) do
    local members = under(plan.out, number)
    for id in pairs(ids) do members[#members + 1] = id end
  end
  local all = {}
  for number, members in pairs(plan.out) do
    all[number] = #members > 0 and index('ZREM', BUCKET .. number, unpack(members)) == #members
  end
  for number, times in pairs(plan.unslice) do
    local gone = all[number] and plan.unbucket[number] or {}  -- no slice has what the set of the bucket had
    for id, at in pairs(times) do
      if not gone[id] then remove_from_slices(number, at, id) end
    end
  end
  for topic, ids in pairs(plan.unbury) do index('ZREM', DEAD .. topic, unpack(ids)) end
  if plan.forget_keys then plan.forget_keys() end
end

-- Ring for pops that wait for places (see limits.lua) in topics where jobs have left some.
local function ring_for_places(rings)
  for topic in pairs(plan.places) do
    local freed = -(plan.counts[topic].reserved or 0)
    local left = freed > 0 and tonumber(index('HGET', COUNTS .. topic, 'ready')) or 0
    if left > 0 then rings[#rings + 1] = 'ready ' .. whole(math.min(freed, left)) .. ' ' .. topic end
  end
end

-- Write the plan, and record its moves (`flags`: see `tell_all`), unless there is no `verb`, because the caller records them.
-- The bell of a topic rings if one of its lists was empty before: waiting pops have seen it empty, and a woken pop learns
-- from its reply how many jobs are left.
local function commit(verb, flags)
  if plan.settle then plan.settle() end  -- see by_key.lua
  local rings = {}
  for number in pairs(plan.bucket) do
    if needs_alarm(BUCKET .. number, plan.first[number]) then rings[#rings + 1] = 'due ' .. number end
  end
  for number, members in pairs(plan.bucket) do index('ZADD', BUCKET .. number, unpack(members)) end
  for topic, at in pairs(plan.topics) do index('ZADD', TOPICS, whole(at), topic) end
  for topic, members in pairs(plan.bury) do index('ZADD', DEAD .. topic, unpack(members)) end
  for topic, by_priority in pairs(plan.push) do
    for priority, entries in pairs(by_priority) do
      if index(plan.push_with, READY .. priority .. ':' .. topic, unpack(entries)) == #entries then
        rings[#rings + 1] = 'ready ' .. #entries .. ' ' .. topic
      end
    end
  end
  write_counts()
  ring_for_places(rings)
  write_records()
  forget_entries()
  if told and verb then tell_all(verb, flags or 0) end
  for _, message in ipairs(rings) do redis.call('SPUBLISH', BELL, message) end
end
