#!lua flags=allow-oom
-- Move what is due out of one bucket, a page of it.
-- arrows: delayed -> ready, delayed -> dead, reserved -> ready, reserved -> delayed, reserved -> dead, ready -> dead
-- returns: {moved, wait, topic, late, jobs, topic, late, jobs, …}: entries dealt with; us until the next is due, 0 when
--   some are due now, -1 for an empty bucket; how late (us) how many jobs of a topic became ready
-- fails: never
-- repeat: yes
-- include: time record moves return
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local bucket = tonumber(ARGV[2])  -- integer: which one
local page = ARGV[3]  -- integer: entries at most

-- How many jobs became ready that had the same topic and time: what falls due together is told together.
local promoted = {}
local function tell(topic, at)
  local times = under(promoted, topic)
  times[at] = (times[at] or 0) + 1
end

-- When the record wants to be looked at in this bucket; nil when it does not belong here.
local function time_of(job)
  if not in_bucket(job) or job.bucket ~= bucket then return nil end
  return score(job)
end

-- The pool is the truth: an entry that it does not bear out goes, one with a wrong time is put right.
local function meet(id)
  local job = read_job(id)
  local at = job and time_of(job)
  if not at then
    under(plan.unbucket, bucket)[id] = true
  elseif at > now_ms then
    schedule(job)
  elseif time_over(job) then
    die(job, 2, 'ttl')
  else
    if job.state == reserved then give_back(job) else move(job, ready) end
    if job.state == ready then tell(job.topic, at) end
  end
end

-- The most frequent move by far, delayed -> ready of a job without optional fields, on the bytes of its header:
-- without a table of the whole job it takes a third less of Redis, and 100,000 jobs may be due in one millisecond.
-- False for every other entry, which then goes the long way.
local function promote(id)
  local raw = redis.pcall('GETRANGE', JOB .. id, '0', '127')
  if type(raw) ~= 'string' or #raw < SHORT then return false end
  local version, length, flags, priority, at_bucket, size = string.byte(raw, 1, 6)
  if flags % 32 ~= delayed or version ~= 1 or length ~= SHORT or at_bucket ~= bucket then return false end
  if size == 0 or #raw < length + size or priority > 9 then return false end
  local at = struct.unpack('>I6', raw, 19)
  if at > now_ms then return false end
  local topic = string.sub(raw, length + 1, length + size)
  local number = (struct.unpack('>I4', raw, 31) + 1) % 4294967296
  count_due({hourly = flags >= HOURLY, next = at, topic = topic}, -1)
  count(topic, 'delayed', -1)
  count(topic, 'ready', 1)
  local entries = under(under(plan.push, topic), priority)
  entries[#entries + 1] = string.format('%d:%s', number, id)
  append(plan.headers, id, string.sub(raw, 1, 2) .. string.char(ready) .. string.sub(raw, 4, 18)
    .. struct.pack('>I6', now_ms) .. string.sub(raw, 25, 30) .. struct.pack('>I4', number))
  under(plan.unbucket, bucket)[id] = true
  tell(topic, at)
  return true
end

local ids = index('ZRANGE', BUCKET .. bucket, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, page)
for _, id in ipairs(ids) do
  if not promote(id) then meet(id) end
end
commit()
local head = index('ZRANGE', BUCKET .. bucket, 0, 0, 'WITHSCORES')
local answer = {#ids, head[2] and math.max(0, tonumber(head[2]) * 1000 - now_us) or -1}
for topic, times in pairs(promoted) do
  for at, jobs in pairs(times) do append(answer, topic, now_us - at * 1000, jobs) end
end
return answer
