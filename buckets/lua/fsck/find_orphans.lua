#!lua flags=no-writes
-- Find the entries that no record confirms: in a bucket, a slice, a topic's dead letters or keys, or the sets of occurrences.
-- arrows: none
-- returns: a list of the ids, or of the names of schedules
-- fails: never
-- repeat: yes
-- include: orphans
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local family = ARGV[2]  -- string: b, s, d, kh, kb or o, see orphans.lua
local which = ARGV[3]  -- string: the bucket's number, with the slice's bound, or the topic, or empty
local ids = {unpack(ARGV, 4)}  -- strings: entries of the index, or names of schedules
return (orphans(family, which, ids))
