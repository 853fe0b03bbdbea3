#!lua flags=no-writes
-- Check the records of some jobs, and whether the indexes of their states hold them.
-- arrows: none
-- returns: {now, counted, wanted, faults}; see include/fsck/faults.lua
-- fails: never
-- repeat: yes
-- include: faults
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local buckets = tonumber(ARGV[2])  -- integer: the number of buckets that have a timer
local ids = {unpack(ARGV, 3)}  -- strings: the ids of the jobs, without duplicates
return survey(ids, buckets, function() end)
