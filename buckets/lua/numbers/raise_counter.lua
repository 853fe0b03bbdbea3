#!lua flags=allow-oom
-- Raise the namespace's counter to that of another Redis, unless it is already as high.
-- arrows: none
-- returns: OK, or nothing if the counter was already as high
-- fails: never
-- repeat: yes
-- include: indexes
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local last = tonumber(ARGV[1])  -- integer: the last number that the other Redis assigned
if index('INCRBY', COUNTER, '0') >= last then return false end
return redis.call('SET', COUNTER, whole(last))
