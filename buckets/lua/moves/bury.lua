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
local by = ARGV[2]  -- string: who makes the moves, for their events
local id = ARGV[3]  -- string: the job
local lease = ARGV[4]  -- integer: of the caller's delivery, or empty
local reason = ARGV[5]  -- string: why, or empty
local note = ARGV[6]  -- string: the new note behind a `=`, or empty: it stays
local within = ARGV[7]  -- string: the topics that the caller reaches (see within.lua); empty: any
local job, raw, refusal = read_leased(id, lease, reason ~= '' or note ~= '')
if not job then return refusal end
die(job, CAUSE_BURIED, 'buried', rest_with(job, raw, reason, note))
commit(VERB_BURY)
return {WORDS[job.state], plan.died}
