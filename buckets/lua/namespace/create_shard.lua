#!lua flags=allow-oom
-- Create a shard: write its settings, unless it has some already; with its events on if they were.
-- arrows: none
-- returns: the settings in force, as HGETALL gives them
-- fails: never
-- repeat: yes
-- include: event_stream
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local entries = ARGV[1]  -- integer: the most entries of the stream of events; empty: events are off
local touches = ARGV[2]  -- integer: 1 if touches are events too, else 0
local fresh = ARGV[3]  -- string: the word of a stream that is made
local fields = {unpack(ARGV, 4)}  -- strings: field, value, field, value, …
if redis.call('EXISTS', meta) == 0 then
  redis.call('HSET', meta, unpack(fields))
  if entries ~= '' then switch_events(entries, touches, fresh) end
end
return redis.call('HGETALL', meta)
