#!lua flags=allow-oom
-- Raise the namespace's counter to the one of another Redis, unless it is beyond that.
-- arrows: none
-- returns: OK, or nothing where it is beyond
-- fails: never
-- repeat: yes
-- include: indexes
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local last = tonumber(ARGV[1])  -- integer: the last number that was given out there
if index('INCRBY', COUNTER, '0') >= last then return false end
return redis.call('SET', COUNTER, whole(last))
