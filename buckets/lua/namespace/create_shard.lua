#!lua flags=allow-oom
-- Create a shard: write its settings, unless it has some already.
-- arrows: none
-- returns: the settings in force, as HGETALL gives them
-- fails: never
-- repeat: yes
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local fields = {unpack(ARGV, 1)}  -- strings: field, value, field, value, …
if redis.call('EXISTS', meta) == 0 then redis.call('HSET', meta, unpack(fields)) end
return redis.call('HGETALL', meta)
