#!lua flags=allow-oom
-- Move a page of due jobs out of one bucket, straight to waiting pops if that is simple.
-- arrows: delayed -> ready, delayed -> reserved, delayed -> dead, reserved -> ready, reserved -> delayed, reserved -> dead,
--   ready -> dead
-- returns: {moved, wait, died, handed, schedules, topic, late, jobs, topic, late, jobs, …}: entries processed; us until the
--   next is due, 0 if some are due now or slices are to be moved, -1 for an empty bucket; the jobs that died, as in `die`
--   (moves.lua); for each group of sleepers the jobs that it gets, as in pop.lua (id, record, id, record, …), or an empty list
--   if no group gets any; the names of the schedules whose time has come, which the timer meets again in a second; and how late
--   (us) how many jobs of a topic became ready, including those handed out
-- fails: never
-- repeat: no
-- include: clock indexes fast_path events
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local by = ARGV[2]  -- string: the instance and any actor, recorded in events
local bucket = tonumber(ARGV[3])  -- integer: the bucket
local page = ARGV[4]  -- integer: entries at most
local sleepers = #ARGV > 4 and {unpack(ARGV, 5)}  -- strings: for each group: jobs wanted, workers (see pop.lua), n, n topics

-- The path for jobs that are not simple. It continues from what the fast path has planned so far (see planned_writes.lua).
local function complete_path(push, due, headers, out)
  -- include: record planned_writes moves give_back place by_key key_order
  -- When this bucket's timer should look at the job; nil if the job does not belong here.
  local function time_of(job)
    if not in_bucket(job) or job.bucket ~= bucket then return nil end
    return score(job)
  end

  -- The record is the truth: an entry that it does not confirm is removed, and one with a wrong time is corrected. Returns the
  -- topic and the time of a job that became ready.
  local function process(id)
    if string.sub(id, 1, 1) == PACE then return by_key().meet_pace(id, bucket) end
    local job = read_job(id)
    local at = job and time_of(job)
    if not at then
      under(plan.unbucket, bucket)[id] = true
    elseif at > now_ms then
      schedule(job)
    elseif time_over(job) then
      die(job, CAUSE_TTL, 'ttl')
    else
      if job.state == reserved then
        job.cause = CAUSE_LEASE
        give_back(job)
      else
        move(job, ready)
      end
      if job.state == ready then return job.topic, at end
    end
  end

  plan.push, plan.due, plan.headers, plan.out[bucket] = push, due, headers, out
  -- Write the results of all jobs, simple or not.
  local function commit_all(moved)
    count_moves(moved, 'delayed', 'ready')
    commit(VERB_DUE)
  end

  return process, commit_all, plan
end

local FRONT, SMALL = 128, 256  -- bytes of a record that show whether it is simple; most records are smaller than SMALL

-- Hand due jobs to the sleepers, as their pops would right after this script. Jobs that a pop would not handle on its own
-- fast path are left to the pop. Returns nil if no sleeper gets a job, otherwise the jobs of each group; how many of each
-- topic; their entries in the bucket; their records; and the headers and the ids of the other jobs. Removes from `push` the
-- jobs that it hands out; otherwise only reads.
local function hand_out(push, raws, headers, ids)
  -- include: pauses
  local LARGE = 4096  -- bytes; larger records are left to the pop, which counts bytes
  local sub, FIRST = string.sub, struct.pack(DELIVERY, 1, 1, 0, now_us)
  local was = string.char(ready) .. struct.pack('>I6', now_ms)  -- the state before a delivery, see buckets/events
  local given, straight, members, records = {}, {}, {}, {}

  -- The due jobs of a topic in the order of a pop, of which the first `taken` are handed out already; none if the topic is
  -- paused. Returns false if the topic has ready jobs, which come first, or a job that is left to the pop.
  local queues = {}
  local function queue_of(topic)
    local queue = queues[topic]
    if queue ~= nil then return queue end
    queue = {taken = 0}
    local has_ready = (redis.pcall('HGET', COUNTS .. topic, 'ready') or '0') ~= '0'
    if (has_ready or push[topic]) and not paused(topic) then
      for priority = 9, 0, -1 do
        for _, entry in ipairs(push[topic] and push[topic][priority] or {}) do queue[#queue + 1] = entry end
      end
      queue = not has_ready and queue
    end
    queues[topic] = queue
    return queue
  end

  -- The record of a job that is delivered for the first time, and the end of its lease; nil for a job that is left to the
  -- pop. `block` names its worker, see pop.lua.
  local head_of, block_of, front, over  -- of the previous job, usually equal
  local function delivered(id, block)
    local key, raw = JOB .. id, raws[id]
    if #raw == FRONT or #raw == SMALL then raw = redis.call('GETRANGE', key, '0', whole(LARGE)) end
    local head = sub(raw, 1, SHORT + string.byte(raw, 6))
    if head ~= head_of or block ~= block_of then
      local flags, level = string.byte(raw, 3, 4)
      local ttr, tries, number = struct.unpack('>I4HI4', raw, 25)
      local ends = from_ms + ttr
      head_of, block_of, front, over = head, block, nil, whole(ends)
      if ttr > 0 and (block == '' or flags % 32 < OPTIONAL) then
        front = string.char(VERSION, LONG, flags - delayed + reserved + (block ~= '' and OPTIONAL or 0), level, bucket)
          .. sub(raw, 6, 18) .. struct.pack('>I6I4HI4', ends, ttr, tries, (number + 1) % 4294967296) .. FIRST
          .. sub(raw, SHORT + 1, #head) .. block
      end
    end
    if front and #raw <= LARGE then return front .. sub(raw, #head + 1), over end
  end

  -- Give a group as many jobs of a topic as it wants. Returns true if the group may also get jobs of its next topic.
  local function serve(group, topic)
    local queue, jobs = queue_of(topic), group.jobs
    while queue and queue.taken < #queue and #jobs < group.most do
      if #jobs == group.served then
        local n, size = struct.unpack('>HH', group.workers, group.at)
        local worker = sub(group.workers, group.at + 4, group.at + 3 + size)
        group.block = size > 0 and struct.pack('>HBH', 3 + size, TAG_WORKER, size) .. worker or ''
        group.served, group.at = group.served + 2 * n, group.at + 4 + size
      end
      local entry = queue[queue.taken + 1]
      local id = sub(entry, string.find(entry, ':', 1, true) + 1)
      local record, lasts = delivered(id, group.block)
      if record then
        local n, j = #members, #jobs
        members[n + 1], members[n + 2] = lasts, id
        records[n + 1], records[n + 2] = JOB .. id, record
        if told then
          local t = #told
          told[t + 1], told[t + 2] = id, was .. front
        end
        jobs[j + 1], jobs[j + 2] = id, record
        queue.taken, given[id], straight[topic] = queue.taken + 1, true, (straight[topic] or 0) + 1
      else
        queue, queues[topic] = false, false
      end
    end
    return queue and #jobs < group.most
  end

  -- Remove the first `n` jobs, those of the highest priorities, from the lists of a topic.
  local function take_out(lists, n)
    for priority = 9, 0, -1 do
      local entries = lists[priority] or {}
      lists[priority] = n < #entries and {unpack(entries, n + 1)} or nil
      n = math.max(n - #entries, 0)
    end
  end

  local handed, at = {}, 1
  while sleepers[at] do
    local first, last = at + 3, at + 2 + tonumber(sleepers[at + 2])
    local group = {jobs = {}, most = 2 * tonumber(sleepers[at]), workers = sleepers[at + 1], served = 0, at = 1}
    handed[#handed + 1], at = group.jobs, last + 1
    while last >= first and not push[sleepers[last]] do last = last - 1 end  -- no job of the last topics is due
    while first <= last and serve(group, sleepers[first]) do first = first + 1 end
  end
  if #members == 0 then return nil end
  for topic, n in pairs(straight) do take_out(push[topic], n) end
  local other_headers, others = {}, {}
  for place, id in ipairs(ids) do
    if not given[id] then
      local n = #others
      others[n + 1] = id
      other_headers[2 * n + 1], other_headers[2 * n + 2] = headers[2 * place - 1], headers[2 * place]
    end
  end
  return handed, straight, members, records, other_headers, others
end

-- The fast path (include/fast_path.lua) is for delayed jobs. What it collects: `moved`, the number of jobs by topic; `push`,
-- `due`, `headers` and `out` as in planned_writes.lua; and for the reply `promoted`, how many jobs became ready, by topic and
-- due time.
ask_for_events()
local moved, push, due, headers, out = {}, {}, {}, {}, {}
local promoted = {}
local handed, straight, members, records  -- what goes straight to sleepers
-- The entries of schedules. The caller has a second to make the occurrences of the schedules that the reply names; if Redis
-- or a topic is full, their entries stay as they are.
local AGAIN, schedules, again = 1000, {}, {}
local head_of, at, topic, bins, bin, times, entries, mark, new_head, event  -- of the previous job, usually equal
local process, commit_all, plan
-- The first record is read up to SMALL bytes. While records are small, the next ones are read together; after a larger
-- record, only the fronts are read.
local TOGETHER, some, before_some, last_of_some, small = 16, nil, 0, 1, false
local raws = sleepers and {}
local sub, read = string.sub, redis.pcall

-- Move the first slice back into the set of the bucket, if it begins soon: well before a job would be late if the timers stood
-- still for a while, and long after slice.lua has moved it. Returns when the first entry that is still in a slice is due (ms, or
-- nil), and whether its slice should be moved now, too.
local slices = SLICE .. bucket
local function load_slice()
  local MOST = 1000  -- entries; a slice has 128 at most, unless another program wrote it
  local soon = now_ms + 0.75 * (tonumber(redis.pcall('HGET', meta, 'slices')) or math.huge)
  local function first_slice()
    local bound = index('ZRANGE', slices, '0', '0')[1]
    local key = bound and slices .. ':' .. bound
    return bound, key, key and tonumber(index('ZRANGE', key, '0', '0', 'WITHSCORES')[2] or 0)
  end
  local bound, key, at = first_slice()
  if not bound or at > soon then return at end
  local entries, loaded, gone = index('ZRANGE', key, '0', whole(MOST - 1), 'WITHSCORES'), {}, {}
  for each = 1, #entries, 2 do
    loaded[each], loaded[each + 1] = entries[each + 1], entries[each]
    gone[#gone + 1] = entries[each]
  end
  -- An entry that an error left in a slice must not delay one of the bucket; one that is early is corrected below.
  if #gone > 0 then
    index('ZADD', BUCKET .. bucket, 'LT', unpack(loaded))
    index('ZREM', key, unpack(gone))
  end
  if redis.call('EXISTS', key) == 0 then index('ZREM', slices, bound) end
  local next_bound, _, next_at = first_slice()
  return next_at, next_bound and next_at <= soon
end

local coming, is_more
if redis.call('EXISTS', slices) == 1 then coming, is_more = load_slice() end
local LEAD, since = string.char(VERSION, SHORT), struct.pack('>I6', now_ms)
-- After a long time without timers, what is still in a slice may be due before what the bucket has.
local until_ms = coming and math.min(now_ms, coming) or now_ms
local ids = index('ZRANGE', BUCKET .. bucket, '-inf', whole(until_ms), 'BYSCORE', 'LIMIT', '0', page)
for place, id in ipairs(ids) do
  local key = JOB .. id
  if small and place > last_of_some then
    before_some, last_of_some = place - 1, math.min(place - 1 + TOGETHER, #ids)
    local keys = {}
    for each = place, last_of_some do keys[#keys + 1] = JOB .. ids[each] end
    some = read('MGET', unpack(keys))
  end
  local front = some and some[place - before_some] or read('GETRANGE', key, '0', place == 1 and '255' or '127')
  small = (small or place == 1) and #front < SMALL
  if raws then raws[id] = front end
  local last, flags, priority, at_bucket = simple(front, delayed, SHORT)
  local head = last and at_bucket == bucket and sub(front, 1, last)
  if head and head ~= head_of then
    local ttr, tries, number
    head_of, at, ttr, tries, number = head, struct.unpack('>I6I4HI4', front, 19)
    if at <= now_ms then
      topic, number = sub(front, SHORT + 1, last), (number + 1) % 4294967296
      bins, bin, times = under(due, topic), bin_at(at, flags % 64 >= HOURLY), under(promoted, topic)
      entries, mark = under(under(push, topic), priority % 16), whole(number) .. ':'
      new_head = LEAD .. string.char(flags - delayed + ready) .. sub(front, 4, 18) .. since .. sub(front, 25, 30)
        .. struct.pack('>I4', number)
      event = told and string.char(delayed) .. sub(front, 19, 24) .. new_head .. topic
    end
  end
  if head and at <= now_ms then
    local n = #headers
    if told then
      local t = #told
      told[t + 1], told[t + 2] = id, event
    end
    entries[#entries + 1] = mark .. id
    moved[topic] = (moved[topic] or 0) + 1
    bins[bin], times[at] = (bins[bin] or 0) - 1, (times[at] or 0) + 1
    headers[n + 1], headers[n + 2] = key, new_head
    out[#out + 1] = id
  elseif sub(id, 1, 1) == SCHEDULE then
    local n = #schedules
    schedules[n + 1] = sub(id, 2)
    again[2 * n + 1], again[2 * n + 2] = whole(now_ms + AGAIN), id
  else
    if not process then process, commit_all, plan = complete_path(push, due, headers, out) end
    local its_topic, its_time = process(id)
    if its_topic then
      local its_times = under(promoted, its_topic)
      its_times[its_time] = (its_times[its_time] or 0) + 1
    end
  end
end

if commit_all then
  commit_all(moved)
else
  if sleepers then
    local other_headers, others
    handed, straight, members, records, other_headers, others = hand_out(push, raws, headers, out)
    if handed then headers, out = other_headers, others end
  end
  local rings = {}
  for topic, by_priority in pairs(push) do
    for priority, entries in pairs(by_priority) do
      local length = index('RPUSH', READY .. priority .. ':' .. topic, unpack(entries))
      if length == #entries then rings[#rings + 1] = 'ready ' .. length .. ' ' .. topic end
    end
  end
  for topic, n in pairs(moved) do
    local counts, gone = COUNTS .. topic, straight and straight[topic] or 0
    index('HINCRBY', counts, 'delayed', '-' .. whole(n))
    index('HINCRBY', counts, 'ready', whole(n - gone))
    if gone > 0 then
      index('HINCRBY', counts, 'reserved', whole(gone))
      index('HINCRBY', counts, 'delivered', whole(gone))
    end
    write_bins(topic, due[topic])
  end
  for at = 1, #headers, 2 do redis.call('SETRANGE', headers[at], '0', headers[at + 1]) end
  if handed then
    redis.call('MSET', unpack(records))
    -- After the records, because this replaces the jobs' old entries: until then, the old entries bring the timer back, which
    -- corrects them.
    index('ZADD', BUCKET .. bucket, unpack(members))
  end
  if #out > 0 then index('ZREM', BUCKET .. bucket, unpack(out)) end
  if told then tell_all(VERB_DUE, 0) end
  for _, message in ipairs(rings) do redis.call('SPUBLISH', BELL, message) end
end

if #again > 0 then index('ZADD', BUCKET .. bucket, unpack(again)) end
local head = index('ZRANGE', BUCKET .. bucket, '0', '0', 'WITHSCORES')
local next_ms = math.min(is_more and 0 or coming or math.huge, tonumber(head[2]) or math.huge)
local wait = next_ms < math.huge and math.max(0, next_ms * 1000 - now_us) or -1
local answer, n = {#ids, wait, plan and plan.died or {}, handed or {}, schedules}, 5
for topic, times in pairs(promoted) do
  for at, jobs in pairs(times) do
    answer[n + 1], answer[n + 2], answer[n + 3] = topic, now_us - at * 1000, jobs
    n = n + 3
  end
end
return answer
