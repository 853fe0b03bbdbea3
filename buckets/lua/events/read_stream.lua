#!lua flags=no-writes
-- Read the switch of a shard's events and the state of their stream.
-- arrows: none
-- returns: {events, touches, stream}: fields of the settings; and {entries, bytes, unread, pending, last}, empty if there is
--   no stream: how many entries were not yet delivered to the group `journal`, how many were delivered but not acknowledged,
--   and the id of the last one delivered
-- fails: never
-- repeat: yes
-- include: event_stream
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local switch = redis.pcall('HMGET', meta, 'events', 'touches', 'stream')
if switch.err then switch = {false, false, false} end  -- damaged settings: off
local length = redis.pcall('XLEN', EVENTS)
if type(length) ~= 'number' or redis.call('EXISTS', EVENTS) == 0 then return {switch, {}} end
return {switch, {length, redis.call('MEMORY', 'USAGE', EVENTS, 'SAMPLES', '5'), unread(length)}}
