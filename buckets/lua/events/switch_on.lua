#!lua flags=allow-oom
-- Switch on the events of a shard: its scripts record their moves in a stream, which is created with the group of its readers.
-- arrows: none
-- returns: the word of the stream
-- fails: NO_META if the shard's settings are gone
-- repeat: yes
-- include: clock event_stream
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local entries = ARGV[2]  -- integer: the most entries that the stream may have
local touches = ARGV[3]  -- integer: 1 if touches are recorded too, else 0
local fresh = ARGV[4]  -- string: the word for a newly created stream
if redis.call('EXISTS', meta) == 0 then return redis.error_reply('NO_META ') end
return switch_events(entries, touches, fresh, now_ms)
