#!lua flags=allow-oom
-- Switch off the events of a shard, and empty their stream if nothing in it is unread.
-- arrows: none
-- returns: {emptied, left}: 1 if the stream is empty or does not exist, else 0; how many entries are unread or not
--   acknowledged
-- fails: never
-- repeat: yes
-- include: event_stream
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local drop = ARGV[1]  -- integer: 1 to empty the stream, else 0
redis.call('HDEL', meta, 'events', 'touches', 'stream')
local length = redis.pcall('XLEN', EVENTS)
if type(length) ~= 'number' or length == 0 then return {1, 0} end  -- another program's key, or none
local behind, pending = unread(length)
if drop ~= '1' or behind + pending > 0 then return {0, behind + pending} end
-- The empty stream stays. It shows instances that events were switched off, rather than the switch lost with all of Redis's
-- data; and it shows the journal that this is the stream that the journal has read.
redis.call('XTRIM', EVENTS, 'MAXLEN', '0')
return {1, 0}
