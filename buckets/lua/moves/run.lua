#!lua flags=allow-oom
-- Make a delayed job due now.
-- arrows: delayed -> ready
-- returns: when the job is due, in ms
-- fails: NOT_FOUND [state], TOO_LATE ready, RESERVED reserved, WRONG_STATE state
-- repeat: no
-- include: clock planned_writes record moves pending_job within append
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local by = ARGV[2]  -- string: the instance and any actor, recorded in events
local id = ARGV[3]  -- string: the job's id
local within = ARGV[4]  -- string: the topics that the caller may access (see within.lua), or empty for any
local job = read_job(id)
local refusal = not_pending(job and reaches(job) and job)
if refusal then return refusal end
if job.state == ready then return redis.error_reply('TOO_LATE ready') end
leave(job)
job.due, job.state, job.cause = now_ms, ready, 0
enter(job)
append(plan.headers, JOB .. job.id, header(job))
tell(job)
commit(VERB_RUN)
return job.due
