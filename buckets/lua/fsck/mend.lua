#!lua flags=allow-oom
-- Make the indexes agree with the records of some jobs, and set aside unreadable records.
-- arrows: none
-- returns: {now, counted, wanted, faults}; see include/fsck/faults.lua
-- fails: never
-- repeat: yes
-- include: clock indexes planned_writes record moves faults append place by_key key_order
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local by = ARGV[2]  -- string: the instance and any actor, recorded in events
local buckets = tonumber(ARGV[3])  -- integer: the number of buckets that have a timer
local ids = {unpack(ARGV, 4)}  -- strings: the ids of the jobs, without duplicates

local LONGEST = 2592000000  -- ms that a tombstone may last

local function end_it(job)
  local left = math.min(job.next - now_ms, LONGEST)
  redis.call('PEXPIRE', JOB .. job.id, whole(math.max(left, 1)))
end

-- Move a job to a bucket that has a timer.
local function rehouse(job)
  unschedule(job)
  job.bucket = job.bucket % buckets
  append(plan.headers, JOB .. job.id, header(job))
  tell(job)
end

-- Give a job to its key, unless it holds the key or is blocked, and settle the key.
local function mend_key(job)
  if by_key().holds(job) then return end
  local key = by_key().plan_of(job.topic, job.key)
  key.is_doubtful = true
  if job.state ~= ready then
    key.into[job.id] = job
  elseif index('ZSCORE', BLOCKED .. job.topic, blocked_entry(job)) ~= '0' then
    local since = math.min(job.next, now_ms)
    leave(job)
    enter(job)  -- with a new number, as its list may have an entry
    job.next = since
    append(plan.headers, JOB .. job.id, header(job))
    tell(job)
  end
end

local function mend(job, id, fault)
  if fault == 'unreadable' or fault == 'contradictory' then
    set_aside(id)
    return true
  end
  if fault == 'endless' then return end_it(job) end
  if fault == 'ending' then
    redis.call('PERSIST', JOB .. id)
    return false
  end
  if fault == 'no_timer' then rehouse(job) end
  if job.key and uses_key(job) then mend_key(job) end
  if in_bucket(job) then
    schedule(job)
  elseif job.state == dead then
    append(under(plan.bury, job.topic), whole(job.next), id)
  end
  return false
end

local reply = survey(ids, buckets, mend)
commit(VERB_MEND)
return reply
