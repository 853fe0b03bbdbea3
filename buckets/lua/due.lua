#!lua flags=allow-oom
-- Move what is due out of one bucket, a page of it.
-- arrows: delayed -> ready, delayed -> dead, reserved -> ready, reserved -> delayed, reserved -> dead, ready -> dead
-- returns: {moved, wait, topic, late, jobs, topic, late, jobs, …}: entries dealt with; us until the next is due, 0 when
--   some are due now, -1 for an empty bucket; how late (us) how many jobs of a topic became ready
-- fails: never
-- repeat: yes
-- include: time layout index plan plain long_way record moves return
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local bucket = tonumber(ARGV[2])  -- integer: which one
local page = ARGV[3]  -- integer: entries at most

-- When the record wants to be looked at in this bucket; nil when it does not belong here.
local function time_of(job)
  if not in_bucket(job) or job.bucket ~= bucket then return nil end
  return score(job)
end

-- The pool is the truth: an entry that it does not bear out goes, one with a wrong time is put right. Returns the topic
-- and the time of a job that became ready.
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
    if job.state == ready then return job.topic, at end
  end
end

return meet
end  -- of the long way

-- How many jobs became ready that had the same topic and time: what falls due together is told together.
local promoted = {}
local function tell(topic, at, n)
  local times = under(promoted, topic)
  times[at] = (times[at] or 0) + n
end

-- Plain jobs that became ready, of one topic: how many, in all and of each time, those counted by the hour apart.
local groups = {}
local function group_of(topic)
  local group = groups[topic] or {jobs = 0, minutes = {}, hours = {}, entries = under(plan.push, topic)}
  groups[topic] = group
  return group
end

-- The next number of a ready entry: as it stands in the entry, and in the header.
local marks = {}
local function mark_after(number)
  local next_number = (number + 1) % 4294967296
  local found = marks[number] or {entry = whole(next_number) .. ':', header = struct.pack('>I4', next_number)}
  marks[number] = found
  return found
end

-- A delayed job that is plain; false for every other entry.
local since = struct.pack('>I6', now_ms)
local function promote(id)
  local key = JOB .. id
  local raw = redis.pcall('GETRANGE', key, '0', '127')
  local last, flags, priority, at_bucket = plain(raw, delayed, SHORT)
  if not last or at_bucket ~= bucket then return false end
  local at, _, _, number = struct.unpack('>I6I4HI4', raw, 19)
  if at > now_ms then return false end
  local group, mark = group_of(string.sub(raw, SHORT + 1, last)), mark_after(number)
  local times, entries = flags >= HOURLY and group.hours or group.minutes, under(group.entries, priority % 16)
  group.jobs = group.jobs + 1
  times[at] = (times[at] or 0) + 1
  entries[#entries + 1] = mark.entry .. id
  append(plan.headers, key, string.sub(raw, 1, 2) .. string.char(flags - delayed + ready) .. string.sub(raw, 4, 18)
    .. since .. string.sub(raw, 25, 30) .. mark.header)
  return true
end

local function count_promoted()
  for topic, group in pairs(groups) do
    count(topic, 'delayed', -group.jobs)
    count(topic, 'ready', group.jobs)
    for hourly, times in pairs({[true] = group.hours, [false] = group.minutes}) do
      for at, n in pairs(times) do
        count_due(topic, at, hourly, -n)
        tell(topic, at, n)
      end
    end
  end
end

local ids, out, meet = index('ZRANGE', BUCKET .. bucket, '-inf', whole(now_ms), 'BYSCORE', 'LIMIT', '0', page), {}, nil
for _, id in ipairs(ids) do
  if promote(id) then
    out[#out + 1] = id
  else
    meet = meet or long_way()
    local topic, at = meet(id)
    if topic then tell(topic, at, 1) end
  end
end
plan.out[bucket] = out
count_promoted()
commit()
local head = index('ZRANGE', BUCKET .. bucket, '0', '0', 'WITHSCORES')
local answer = {#ids, head[2] and math.max(0, tonumber(head[2]) * 1000 - now_us) or -1}
for topic, times in pairs(promoted) do
  for at, jobs in pairs(times) do append(answer, topic, now_us - at * 1000, jobs) end
end
return answer
