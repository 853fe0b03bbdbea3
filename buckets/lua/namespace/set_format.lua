#!lua flags=allow-oom
-- Let the far jobs of a shard wait in slices from now on (format 2).
-- arrows: none
-- returns: 1
-- fails: NO_META if the shard's settings are gone
-- repeat: yes
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local format = ARGV[1]  -- integer: the format
local slices = ARGV[2]  -- integer: how far ahead a job must be due to wait in a slice, in ms
if redis.call('EXISTS', meta) == 0 then return redis.error_reply('NO_META ') end
if not redis.call('HGET', meta, 'slices') then redis.call('HSET', meta, 'format', format, 'slices', slices) end
return 1
