#!lua flags=allow-oom
-- Restart a lease from now.
-- arrows: reserved -> reserved
-- returns: when the lease ends, in ms
-- fails: NOT_FOUND [state], NOT_RESERVED state, STALE_LEASE state
-- repeat: yes
-- include: clock moves leased_job planned_writes events
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local by = ARGV[2]  -- string: the instance and any actor, recorded in events
local id = ARGV[3]  -- string: the job's id
local lease = ARGV[4]  -- integer: the lease of the caller's delivery, or empty
local ttr = tonumber(ARGV[5])  -- integer: ms from now; empty for the lease's own ttr
local within = ARGV[6]  -- string: the topics that the caller may access (see within.lua), or empty for any
local job, _, refusal = read_leased(id, lease)
if not job then return refusal end
if told and not redis.call('HGET', meta, 'touches') then told = nil end
move(job, reserved, from_ms + (ttr or job.ttr))
commit(VERB_TOUCH)
return job.next
