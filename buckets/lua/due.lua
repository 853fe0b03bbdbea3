#!lua flags=allow-oom
-- Move what is due out of one bucket, a page of it.
-- arrows: delayed -> ready, delayed -> dead, reserved -> ready, reserved -> delayed, reserved -> dead, ready -> dead
-- returns: {moved, wait, topic, late, jobs, topic, late, jobs, …}: entries dealt with; us until the next is due, 0 when
--   some are due now, -1 for an empty bucket; how late (us) how many jobs of a topic became ready
-- fails: never
-- repeat: yes
-- include: time layout index plan plain promote long_way layout record moves return
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

local ids, out, meet = index('ZRANGE', BUCKET .. bucket, '-inf', whole(now_ms), 'BYSCORE', 'LIMIT', '0', page), {}, nil
for _, id in ipairs(ids) do
  if promote(id) then
    out[#out + 1] = id
  else
    meet = meet or long_way()
    local topic, at = meet(id)
    if topic then tally(under(promoted, topic), at, 1) end
  end
end
plan.out[bucket] = out
commit()
local head = index('ZRANGE', BUCKET .. bucket, '0', '0', 'WITHSCORES')
local answer = {#ids, head[2] and math.max(0, tonumber(head[2]) * 1000 - now_us) or -1}
for topic, times in pairs(promoted) do
  for at, jobs in pairs(times) do append(answer, topic, now_us - at * 1000, jobs) end
end
return answer
