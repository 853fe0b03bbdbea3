#!lua flags=no-writes
-- Check the records of some schedules, and whether their timers would meet them.
-- arrows: none
-- returns: {cursor, names, faults}; see include/fsck/schedule_faults.lua
-- fails: never
-- repeat: yes
-- include: schedule_faults
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local buckets = tonumber(ARGV[2])  -- integer: how many have a timer
local cursor = ARGV[3]  -- string: where to go on; 0 at first, and after the last ones
return survey_schedules(cursor, buckets, function() end)
