#!lua flags=allow-oom
-- Restart a lease from now.
-- arrows: reserved -> reserved
-- returns: when it ends, in ms
-- fails: NOT_FOUND [state], NOT_RESERVED state, STALE_LEASE state
-- repeat: yes
-- include: clock moves leased_job planned_writes
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local id = ARGV[2]  -- string: the job
local lease = ARGV[3]  -- integer: of the caller's delivery, or empty
local ttr = tonumber(ARGV[4])  -- integer: ms from now; empty for that of the lease
local within = ARGV[5]  -- string: the topics that the caller reaches (see within.lua); empty: any
local job, _, refusal = read_leased(id, lease)
if not job then return refusal end
move(job, reserved, from_ms + (ttr or job.ttr))
commit()
return job.next
