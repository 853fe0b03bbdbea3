#!lua flags=allow-oom
-- Reserve ready jobs of the first topics that have any, higher priorities first.
-- arrows: ready -> reserved, ready -> finished
-- returns: {left, more, opens, id, record, id, record, …}: ready jobs left in the last topic searched, -1 if the topic has no
--   counts; 1 if stale entries or large bodies stopped the search early; us until the first of the paused topics resumes, -1
--   if none is paused, -2 if all are paused until an explicit resume; the jobs as they are now
-- fails: never
-- repeat: no
-- include: clock indexes timer_alarm fast_path pauses events
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local by = ARGV[2]  -- string: the instance and any actor, recorded in events
local bucket = tonumber(ARGV[3])  -- integer: the bucket that holds the leases
local want = tonumber(ARGV[4])  -- integer: jobs at most
local room = tonumber(ARGV[5])  -- integer: bytes of records at most
local always = tonumber(ARGV[6])  -- integer: jobs to pop regardless of their size
local ttr = tonumber(ARGV[7])  -- integer: ms, for these deliveries; empty for each job's own ttr
local workers = ARGV[8]  -- string: in the order of serving: jobs wanted (2 bytes), length of name (2), name; all or none have one
local topics = {unpack(ARGV, 9)}  -- strings: in the order of preference

-- The path for jobs that are not simple. It continues from what the fast path has planned so far (see planned_writes.lua).
local function complete_path(records, members)
  -- include: planned_writes ready_job deliver_job
  plan.records, plan.bucket[bucket] = records, members
  -- Write the results of all jobs, simple or not.
  local function commit_all(delivered, first)
    count_moves(delivered, 'ready', 'reserved')
    for topic, n in pairs(delivered) do count(topic, 'delivered', n) end
    if first then plan.first[bucket] = math.min(plan.first[bucket] or first, first) end
    if not plan.first[bucket] then plan.bucket[bucket] = nil end
    commit(VERB_POP)
  end

  return ready_job, deliver_job, commit_all
end

local MOST = want + 500  -- entries looked at: 200,000 stale ones in one script would block Redis for 0.2 s
local ENOUGH = room - 262144  -- room at which the search stops: 8 MiB in one script would block Redis for 0.1 s
local answer = {0, 0, -1}

-- The ready lists are searched one after the other: the current list (nil at the end), how many of its entries are processed,
-- its priority, its topic, the topic's place in the arguments; and how many entries of each earlier list were processed.
local list, at, priority, last, place, taken = nil, 0, 0, nil, 0, {}
local function lists_above(topic, ...)
  return redis.call('EXISTS', READY .. '9:' .. topic, READY .. '8:' .. topic, READY .. '7:' .. topic, READY .. '6:' .. topic,
    READY .. '5:' .. topic, ...)
end

local function next_list()
  if list then taken[list] = at end
  priority, at = priority - 1, 0
  while priority < 0 do
    place = place + 1
    local topic = topics[place]
    if not topic then
      list = nil
      return
    end
    -- Most topics are not paused, and most jobs have priority 4: one lookup shows both. If events are on, their stream
    -- exists, so the lookup also shows that events are off.
    local is_usual = not told and lists_above(topic, PAUSED .. topic, EVENTS) == 0
    if is_usual then
      last, priority, told = topic, 4, false
    else
      if told == nil then ask_for_events() end
      if not paused(topic) then last, priority = topic, lists_above(topic) == 0 and 4 or 9 end
    end
  end
  list = READY .. string.char(48 + priority) .. ':' .. last
end

-- The fast path (include/fast_path.lua) is for jobs that are delivered for the first time, with their own ttr. What it
-- collects: the number of delivered jobs by topic; entries of the bucket, and their earliest time; records.
local delivered, members, first, records = {}, {}, nil, {}
local looked, found, seen, full, large = 0, 0, {}, false, false
local entries, n = {}, 0
-- The worker of the next jobs, the optional block that names it in a record without other fields, and how many jobs are served
-- before the next worker's turn.
local worker, block, served, next_at = '', '', 0, 1
local head_of, block_of, topic, ttr_now, tries, number, mark_of, over, score, front, event  -- of the previous job, usually equal
local live, deliver, commit_all
local sub, read = string.sub, redis.pcall
local FIRST = struct.pack(DELIVERY, 1, 1, 0, now_us)
next_list()
while list and found < want and looked < MOST and not full do
  n = n + 1
  if n > #entries then entries, n = index('LRANGE', list, whole(at), whole(at + want - found - 1)), 1 end
  if #entries == 0 then
    next_list()
  else
    if found == served then
      local jobs, size = struct.unpack('>HH', workers, next_at)
      worker = sub(workers, next_at + 4, next_at + 3 + size)
      block = size > 0 and struct.pack('>HBH', 3 + size, TAG_WORKER, size) .. worker or ''
      served, next_at = served + jobs, next_at + 4 + size
    end
    local entry = entries[n]
    local colon = string.find(entry, ':', 1, true)
    local id = colon and colon < #entry and sub(entry, colon + 1)
    local key = id and JOB .. id
    local raw = id and not seen[id] and read('GET', key)
    local topic_end, flags, level, job
    if raw then
      local mark = sub(entry, 1, colon - 1)
      topic_end, flags, level = simple(raw, ready, SHORT)
      local head = topic_end and sub(raw, 1, topic_end)
      if head and (head ~= head_of or block ~= block_of) then
        head_of, block_of, topic = head, block, sub(raw, SHORT + 1, topic_end)
        ttr_now, tries, number = struct.unpack('>I4HI4', raw, 25)
        mark_of, over = whole(number), from_ms + ttr_now
        score = whole(over)
        front = string.char(VERSION, LONG, flags - ready + reserved + (block ~= '' and OPTIONAL or 0), level, bucket)
          .. sub(raw, 6, 18) .. struct.pack('>I6', over) .. sub(raw, 25, SHORT) .. FIRST .. topic .. block
        event = told and string.char(ready) .. sub(raw, 19, 24) .. front
      end
      if not head or ttr_now == 0 or ttr or mark ~= mark_of or (block ~= '' and flags % 32 >= OPTIONAL) then
        if not live then live, deliver, commit_all = complete_path(records, members) end
        topic_end, job = nil, live(mark, id, raw)
      end
    end
    local valid = topic_end or job
    full = valid and found >= always and #raw > room
    if not full then at, looked = at + 1, looked + 1 end
    if valid and not full then
      local record
      if job then
        record = deliver(job, raw, worker)
      else
        delivered[topic] = (delivered[topic] or 0) + 1
        record = front .. sub(raw, topic_end + 1)
        local m, r = #members, #records
        members[m + 1], members[m + 2] = score, id
        records[r + 1], records[r + 2] = key, record
        if told then
          local t = #told
          told[t + 1], told[t + 2] = id, event
        end
        first = math.min(first or over, over)
      end
      found, room, seen[id] = found + 1, room - #raw, true
      answer[2 * found + 2], answer[2 * found + 3] = id, record
      large = room <= ENOUGH
      full = large
    end
  end
end

local left = {}
if commit_all then
  commit_all(delivered, first)
elseif first then
  local set = BUCKET .. bucket
  local alarms = needs_alarm(set, first)
  index('ZADD', set, unpack(members))
  for topic, jobs in pairs(delivered) do
    local counts, jobs = COUNTS .. topic, whole(jobs)
    left[topic] = index('HINCRBY', counts, 'ready', '-' .. jobs)
    if left[topic] == 0 then drop_lists(topic) end
    index('HINCRBY', counts, 'reserved', jobs)
    index('HINCRBY', counts, 'delivered', jobs)
  end
  redis.call('MSET', unpack(records))
  if told then tell_all(VERB_POP, 0) end
  if alarms then redis.call('SPUBLISH', BELL, 'due ' .. bucket) end
end
if list then taken[list] = at end
for list, n in pairs(taken) do
  if n > 0 then index('LPOP', list, whole(n)) end
end
if last then
  local ready_left = left[last] or index('HGET', COUNTS .. last, 'ready') or redis.call('EXISTS', COUNTS .. last) - 1
  answer[1] = tonumber(ready_left) or 0
end
answer[2], answer[3] = (large or (found == 0 and looked >= MOST)) and 1 or 0, opens
return answer
