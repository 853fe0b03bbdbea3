#!lua flags=no-writes
-- Check the records of some schedules, and whether their timers would find them in time.
-- arrows: none
-- returns: {cursor, names, faults}; see include/fsck/schedule_faults.lua
-- fails: never
-- repeat: yes
-- include: schedule_faults
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local buckets = tonumber(ARGV[2])  -- integer: the number of buckets that have a timer
local cursor = ARGV[3]  -- string: where to continue: 0 at first; the cursor returned is 0 after the last page
return survey_schedules(cursor, buckets, function() end)
