#!lua flags=allow-oom
-- Move a reserved job to the dead letters.
-- arrows: reserved -> dead
-- returns: {dead, died}: the new state; the job, as in `die` (moves.lua)
-- fails: NOT_FOUND [state], NOT_RESERVED state, STALE_LEASE state
-- repeat: no
-- include: optional_fields planned_writes moves leased_job
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local by = ARGV[2]  -- string: the instance and any actor, recorded in events
local id = ARGV[3]  -- string: the job's id
local lease = ARGV[4]  -- integer: the lease of the caller's delivery, or empty
local reason = ARGV[5]  -- string: the reason, or empty
local note = ARGV[6]  -- string: the new note after a `=`, or empty to keep the old note
local within = ARGV[7]  -- string: the topics that the caller may access (see within.lua), or empty for any
local job, raw, refusal = read_leased(id, lease, reason ~= '' or note ~= '')
if not job then return refusal end
die(job, CAUSE_BURIED, 'buried', rest_with(job, raw, reason, note))
commit(VERB_BURY)
return {WORDS[job.state], plan.died}
