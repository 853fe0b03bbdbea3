#!lua flags=no-writes
-- Read the members with their cards, and what they last reported about the workers that poll through them.
-- arrows: none
-- returns: a list: for each member the ms since the epoch at which it last signed in, its card and its report, each empty if
--   there is none
-- fails: never
-- repeat: yes
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local signed = redis.pcall('ZRANGE', MEMBERS, 0, -1, 'WITHSCORES')
local found = {}
local function text(reply) return type(reply) == 'string' and reply or '' end
for place = 1, #signed, 2 do
  found[#found + 1] = signed[place + 1]
  found[#found + 1] = text(redis.pcall('HGET', CARDS, signed[place]))
  found[#found + 1] = text(redis.pcall('GET', WORKERS .. signed[place]))
end
return found
