#!lua flags=allow-oom
-- Make a delayed job due now.
-- arrows: delayed -> ready
-- returns: due, in ms
-- fails: NOT_FOUND [state], TOO_LATE ready, RESERVED reserved, WRONG_STATE state
-- repeat: no
-- include: clock planned_writes record moves pending_job within append
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local by = ARGV[2]  -- string: who makes the moves, for their events
local id = ARGV[3]  -- string: the job
local within = ARGV[4]  -- string: the topics that the caller reaches (see within.lua); empty: any
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
