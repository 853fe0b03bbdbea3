#!lua flags=allow-oom
-- Switch off the events of a shard, and drop their stream if nothing in it is unread.
-- arrows: none
-- returns: {dropped, left}: 1 if there is no stream now, else 0; the entries that the group `journal` has not acknowledged
-- fails: never
-- repeat: yes
-- include: event_stream
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local drop = ARGV[1]  -- integer: 1 to drop the stream, else 0
redis.call('HDEL', meta, 'events', 'touches', 'stream')
local length = redis.pcall('XLEN', EVENTS)
if type(length) ~= 'number' then return {1, 0} end  -- another program's key
local behind, pending = unread(length)
if drop == '1' and behind + pending == 0 then redis.call('UNLINK', EVENTS) end
return {1 - redis.call('EXISTS', EVENTS), behind + pending}
