#!lua
-- Change a delayed or ready job and its body; unlike `update`, this needs room in Redis.
-- arrows: delayed -> delayed, delayed -> ready, ready -> ready
-- returns: {state, due}: due in ms
-- fails: NOT_FOUND [state], TOO_LATE ready, RESERVED reserved, WRONG_STATE state
-- repeat: yes
-- include: change_job
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local by = ARGV[2]  -- string: the instance and any actor, recorded in events
local id = ARGV[3]  -- string: the job's id
local delay = tonumber(ARGV[4])  -- integer: ms from now, or empty
local due = tonumber(ARGV[5])  -- integer: ms since the epoch, or empty
local priority = tonumber(ARGV[6])  -- integer: or empty
local ttl = tonumber(ARGV[7])  -- integer: ms from the due time, or empty
local within = ARGV[8]  -- string: the topics that the caller may access (see within.lua), or empty for any
local body = ARGV[9]  -- string: the new body
return change_job(id, delay, due, priority, ttl, body)
