#!lua flags=allow-oom
-- Move a reserved job to the dead letters.
-- arrows: reserved -> dead
-- returns: {dead, died}: the job, as in `die` (moves.lua)
-- fails: NOT_FOUND [state], NOT_RESERVED state, STALE_LEASE state
-- repeat: no
-- include: optional_fields planned_writes moves leased_job
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local id = ARGV[2]  -- string: the job
local lease = ARGV[3]  -- integer: of the caller's delivery, or empty
local reason = ARGV[4]  -- string: why, or empty
local job, raw, refusal = read_leased(id, lease, reason ~= '')
if not job then return refusal end
die(job, CAUSE_BURIED, 'buried', reason ~= '' and rest_with(job, raw, TAG_REASON, reason) or nil)
commit()
return {WORDS[job.state], plan.died}
