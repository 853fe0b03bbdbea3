#!lua flags=allow-oom
-- Append entries to the log of actions, which keeps about the last 10,000.
-- arrows: none
-- returns: the ids of the entries
-- fails: never
-- repeat: no
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local entries = {unpack(ARGV, 1)}  -- strings: JSON objects
local KEPT = 10000
if redis.call('TYPE', ACTIONS).ok ~= 'stream' then redis.call('DEL', ACTIONS) end
local ids = {}
for at, entry in ipairs(entries) do
  ids[at] = redis.call('XADD', ACTIONS, 'MAXLEN', '~', KEPT, '*', 'entry', entry)
end
return ids
