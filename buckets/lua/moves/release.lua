#!lua flags=allow-oom
-- Release a job to its next delivery, or to the dead letters.
-- arrows: reserved -> ready, reserved -> delayed, reserved -> dead
-- returns: {state, due, died}: the new state; when the next delivery is due (ms); the job if it died, as in `die` (moves.lua)
-- fails: NOT_FOUND [state], NOT_RESERVED state, STALE_LEASE state
-- repeat: no
-- include: planned_writes optional_fields leased_job give_back
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local by = ARGV[2]  -- string: the instance and any actor, recorded in events
local id = ARGV[3]  -- string: the job's id
local lease = ARGV[4]  -- integer: the lease of the caller's delivery, or empty
local delay = tonumber(ARGV[5])  -- integer: ms; empty for the current step of a ladder
local counts = ARGV[6]  -- integer: 1, or 0 if the delivery does not count as a try
local reason = ARGV[7]  -- string: the reason, or empty
local ladder = ARGV[8]  -- string: the ladder for a job without its own: ms, 6 bytes a step; empty for ready at once
local note = ARGV[9]  -- string: the new note after a `=`, or empty to keep the old note
local priority = tonumber(ARGV[10])  -- integer: the new priority, or empty
local within = ARGV[11]  -- string: the topics that the caller may access (see within.lua), or empty for any
local job, raw, refusal = read_leased(id, lease, reason ~= '' or note ~= '')
if not job then return refusal end
local rest = rest_with(job, raw, reason, note)
job.priority = priority or job.priority
if counts == '0' then job.attempts = math.max(job.attempts - 1, 0) end
job.cause = 0  -- a pop of an older version does not reset the cause of an earlier lease that ended
give_back(job, delay, rest, ladder)
commit(VERB_RELEASE)
return {WORDS[job.state], job.next, plan.died or {}}
