#!lua flags=allow-oom
-- The lease runs anew from now.
-- arrows: reserved -> reserved
-- returns: until when, in ms
-- fails: NOT_FOUND [state], NOT_RESERVED state, STALE_LEASE state
-- repeat: yes
-- include: time layout index plan record moves leased
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local id = ARGV[2]  -- string: the job
local lease = ARGV[3]  -- integer: which delivery speaks, or empty
local ttr = tonumber(ARGV[4])  -- integer: ms from now; empty for that of the lease
local job, _, refusal = read_leased(id, lease)
if not job then return refusal end
move(job, reserved, from_ms + (ttr or job.ttr))
commit()
return job.next
