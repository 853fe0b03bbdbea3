#!lua flags=allow-oom
-- Switch off the events of a shard, and drop their stream if nothing in it is unread.
-- arrows: none
-- returns: {dropped, left}: 1 if the stream was dropped or is not there, else 0; the entries that nobody has acknowledged
-- fails: never
-- repeat: yes
-- include: event_stream
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local drop = ARGV[1]  -- integer: 1 to drop the stream, else 0
-- A stream is left for a while in place of one that was dropped: instances tell by it that events were switched off, and that
-- their switch was not lost with all that Redis had.
local LEFT_MS = 600000
redis.call('HDEL', meta, 'events', 'touches', 'stream')
local length = redis.pcall('XLEN', EVENTS)
if type(length) ~= 'number' or redis.call('PTTL', EVENTS) ~= -1 then return {1, 0} end  -- another program's key; dropped
local behind, pending = unread(length)
if drop ~= '1' or behind + pending > 0 then return {0, behind + pending} end
redis.call('UNLINK', EVENTS)
redis.call('XGROUP', 'CREATE', EVENTS, 'dropped', '0', 'MKSTREAM')
redis.call('PEXPIRE', EVENTS, LEFT_MS)
return {1, 0}
