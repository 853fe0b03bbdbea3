#!lua flags=allow-oom
-- Create a shard: write its settings, unless it already has some, and switch its events on if they were on before.
-- arrows: none
-- returns: the settings in force, as HGETALL returns them
-- fails: never
-- repeat: yes
-- include: clock event_stream
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local entries = ARGV[2]  -- integer: the most entries of the stream of events, or empty if events are off
local touches = ARGV[3]  -- integer: 1 if touches are events too, else 0
local fresh = ARGV[4]  -- string: the word for a newly created stream
local fields = {unpack(ARGV, 5)}  -- strings: field, value, field, value, …
if redis.call('EXISTS', meta) == 0 then
  redis.call('HSET', meta, unpack(fields))
  if entries ~= '' then switch_events(entries, touches, fresh, now_ms) end
end
return redis.call('HGETALL', meta)
