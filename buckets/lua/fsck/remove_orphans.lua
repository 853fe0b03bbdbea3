#!lua flags=allow-oom
-- Remove the entries that no record confirms: from a bucket, a topic's dead letters, or the sets of occurrences.
-- arrows: none
-- returns: a list of the ids, or of the names of schedules
-- fails: never
-- repeat: yes
-- include: orphans
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local family = ARGV[2]  -- string: b for a bucket, d for dead letters, o for the sets of occurrences of schedules
local which = ARGV[3]  -- string: the bucket's number, or the topic, or empty
local ids = {unpack(ARGV, 4)}  -- strings: entries of the index, or names of schedules
local found, set = orphans(family, which, ids)
if set and #found > 0 then redis.call('ZREM', set, unpack(found)) end
if not set then
  for _, name in ipairs(found) do redis.call('UNLINK', OCCURRENCES .. name) end
end
return found
