-- Moves are planned first and written at the end, so that a script has read and checked everything before its first
-- write. The order of the writes is such that an error between two of them leaves at most an index entry too many,
-- which readers drop: new index entries, counts, records, and only then the removal of old entries.
local plan = {bucket = {}, first = {}, unbucket = {}, push = {}, bury = {}, unbury = {}, counts = {}, due = {},
  headers = {}, records = {}, tombs = {}, gone = {}, topics = {}, push_with = 'RPUSH'}

-- A whole number as a string: left to Redis (%.17g) or to Lua (%.14g), that costs more than the command.
local function whole(number) return string.format('%d', number) end

-- (A third that is nil is not written: Lua would make room for it.)
local function append(list, first, second, third)
  local n = #list
  list[n + 1], list[n + 2] = first, second
  if third then list[n + 3] = third end
end

local function under(family, key)
  local found = family[key]
  if not found then
    found = {}
    family[key] = found
  end
  return found
end

local function count(topic, field, n)
  local counts = under(plan.counts, topic)
  counts[field] = (counts[field] or 0) + n
end

-- A pending job in the histogram: minutes above zero, hours below.
local function count_due(job, n)
  local bin = job.hourly and -math.floor(job.next / 3600000) or math.floor(job.next / 60000)
  local bins = under(plan.due, job.topic)
  bins[bin] = (bins[bin] or 0) + n
end

local function in_bucket(job)
  return job.state == delayed or job.state == reserved or (job.state == ready and job.ttl)
end

-- When its timer looks at it: a ready one at the end of its ttl.
local function score(job)
  return job.state == ready and job.due + job.ttl or job.next
end

local function schedule(job)
  local at = score(job)
  append(under(plan.bucket, job.bucket), whole(at), job.id)
  plan.first[job.bucket] = math.min(plan.first[job.bucket] or at, at)
end

-- Take a live job out of the indexes of its state. Its entry in a ready list just becomes stale.
local function leave(job)
  count(job.topic, WORDS[job.state], -1)
  if job.state == delayed then count_due(job, -1) end
  if in_bucket(job) then under(plan.unbucket, job.bucket)[job.id] = true end
  if job.state == dead then table.insert(under(plan.unbury, job.topic), job.id) end
end

-- What a job's header says from now on because of `job.state`, which is new.
local function arrive(job)
  if job.state == delayed then
    job.hourly = job.next - now_ms > 86400000
  elseif job.state == ready then
    job.number = (job.number + 1) % 4294967296
    job.next = now_ms
  elseif job.state == dead then
    job.next = now_ms
  end
end

-- Put the job into the indexes of `job.state`.
local function enter(job)
  arrive(job)
  count(job.topic, WORDS[job.state], 1)
  if job.state == delayed then
    count_due(job, 1)
  elseif job.state == ready then
    local entries = under(under(plan.push, job.topic), job.priority)
    entries[#entries + 1] = string.format('%d:%s', job.number, job.id)
  elseif job.state == dead then
    append(under(plan.bury, job.topic), whole(now_ms), job.id)
  end
  if in_bucket(job) then
    schedule(job)
    under(plan.unbucket, job.bucket)[job.id] = nil
  end
end

-- Move a live job to another live state, delayed and reserved with the time `at`; write its header, or the whole
-- record where `rest`, all behind the header, is given.
local function move(job, to, at, rest)
  leave(job)
  job.state = to
  job.next = at or job.next
  enter(job)
  if rest then
    append(plan.records, JOB .. job.id, header(job) .. rest)
  else
    append(plan.headers, job.id, header(job))
  end
end

-- End a job: a tombstone without the body for its retention, or nothing.
local function entomb(job, to)
  leave(job)
  count(job.topic, WORDS[to], 1)
  job.state = to
  job.next = now_ms + job.retention
  job.header, job.optional, job.hourly = job.lease > 0 and LONG or SHORT, nil, nil
  if job.retention > 0 then
    append(plan.tombs, job.id, header(job) .. job.topic, whole(job.retention))
  else
    plan.gone[#plan.gone + 1] = job.id
  end
end

local function die(job, cause, word, rest)
  job.cause = cause
  count(job.topic, 'died_' .. word, 1)
  move(job, dead, nil, rest)
end

local function drop_lists(topic)
  local lists = {}
  for priority = 0, 9 do lists[priority + 1] = READY .. priority .. ':' .. topic end
  redis.call('UNLINK', unpack(lists))
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
  for topic, bins in pairs(plan.due) do
    for bin, n in pairs(bins) do
      local field = string.format(bin < 0 and 'h%d' or 'm%d', math.abs(bin))
      if n ~= 0 and index('HINCRBY', DUE .. topic, field, whole(n)) <= 0 then
        index('HDEL', DUE .. topic, field)
      end
    end
  end
end

local function write_records()
  local headers, records, tombs = plan.headers, plan.records, plan.tombs
  for at = 1, #headers, 2 do redis.call('SETRANGE', JOB .. headers[at], '0', headers[at + 1]) end
  if #records > 0 then redis.call('MSET', unpack(records)) end
  for at = 1, #tombs, 3 do redis.call('SET', JOB .. tombs[at], tombs[at + 1], 'PX', tombs[at + 2]) end
  for _, id in ipairs(plan.gone) do redis.call('UNLINK', JOB .. id) end
end

-- Whoever runs a bucket's timer sleeps until its first entry; he must hear of an earlier one.
local function earlier_than_head(number)
  local head = index('ZRANGE', BUCKET .. number, '0', '0', 'WITHSCORES')
  return plan.first[number] < (tonumber(head[2]) or math.huge)
end

local function forget_entries()
  for number, ids in pairs(plan.unbucket) do
    local members = {}
    for id in pairs(ids) do members[#members + 1] = id end
    if #members > 0 then index('ZREM', BUCKET .. number, unpack(members)) end
  end
  for topic, ids in pairs(plan.unbury) do index('ZREM', DEAD .. topic, unpack(ids)) end
end

-- Write the plan. The bell of a topic rings when a list was empty before: who waits has seen it empty, and who is woken
-- learns from his pop how many are left.
local function commit()
  local rings = {}
  for number in pairs(plan.bucket) do
    if earlier_than_head(number) then rings[#rings + 1] = 'due ' .. number end
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
  write_records()
  forget_entries()
  for _, message in ipairs(rings) do redis.call('PUBLISH', BELL, message) end
end
