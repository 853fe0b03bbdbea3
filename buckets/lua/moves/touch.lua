#!lua flags=allow-oom
-- Restart a lease from now.
-- arrows: reserved -> reserved
-- returns: when it ends, in ms
-- fails: NOT_FOUND [state], NOT_RESERVED state, STALE_LEASE state
-- repeat: yes
-- include: clock moves leased_job planned_writes events
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local by = ARGV[2]  -- string: who makes the moves, for their events
local id = ARGV[3]  -- string: the job
local lease = ARGV[4]  -- integer: of the caller's delivery, or empty
local ttr = tonumber(ARGV[5])  -- integer: ms from now; empty for that of the lease
local within = ARGV[6]  -- string: the topics that the caller reaches (see within.lua); empty: any
local job, _, refusal = read_leased(id, lease)
if not job then return refusal end
if told and not redis.call('HGET', meta, 'touches') then told = nil end
move(job, reserved, from_ms + (ttr or job.ttr))
commit(VERB_TOUCH)
return job.next
