#!lua flags=allow-oom
-- Reserve one job by its id, even if its topic is paused. A delayed job becomes due now, as by a run; a dead one, as by a kick.
-- arrows: delayed -> reserved, ready -> reserved, dead -> reserved, delayed -> finished, ready -> finished, dead -> finished
-- returns: the record as it is now
-- fails: NOT_FOUND [state], RESERVED reserved, WRONG_STATE finished, LIMITED limit us (see `reached` in limits.lua)
-- repeat: no
-- include: clock indexes planned_writes record deliver_job within limits permits by_key
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local by = ARGV[2]  -- string: the instance and any actor, recorded in events
local id = ARGV[3]  -- string: the job's id
local bucket = tonumber(ARGV[4])  -- integer: the bucket that holds the lease, unless the job is in one already
local ttr = tonumber(ARGV[5])  -- integer: ms, for this delivery; empty for the job's own ttr
local worker = ARGV[6]  -- string: the worker's name, or empty
local within = ARGV[7]  -- string: the topics that the caller may access (see within.lua), or empty for any
local limits = {unpack(ARGV, 8)}  -- strings: for each topic with limits: topic, rate, burst, concurrency (see limits.lua)
local job, raw = read_job(id, true)
if not job or not reaches(job) then return redis.error_reply('NOT_FOUND ') end
local word = WORDS[job.state]
if job.state == deleted then return redis.error_reply('NOT_FOUND ' .. word) end
if job.state == reserved then return redis.error_reply('RESERVED ' .. word) end
if job.state == finished then return redis.error_reply('WRONG_STATE ' .. word) end
local limit
for at = 1, #limits, 4 do
  if limits[at] == job.topic then limit = limit_of(unpack(limits, at, at + 3)) end
end
local which, opens_in = reached(limit)
if not which and job.key and by_key().refuses(job) then which, opens_in = 'per_key', UNKNOWN end
if which then return redis.error_reply('LIMITED ' .. which .. ' ' .. whole(opens_in)) end
if job.state == dead then job.attempts, job.step = 0, 0 end
job.number = (job.number + 1) % 4294967296  -- makes entries in ready lists stale, even those of an earlier life
if job.state ~= ready then job.due, job.cause = now_ms, 0 end
job.holds = limit and limit.holds
local record = deliver_job(job, raw, worker)
if limit and limit.bucket then take_permits(limit.bucket, 1) end
commit(VERB_TAKE)
return record
