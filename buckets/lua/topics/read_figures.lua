#!lua flags=no-writes
-- Read the figures of some minutes.
-- arrows: none
-- returns: {minute, {field, number, …}, …}, without the minutes in which nothing was counted
-- fails: never
-- repeat: yes
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local topic = ARGV[1]  -- string: the topic, or empty for all topics together
local first = tonumber(ARGV[2])  -- integer: the first minute, counted since the epoch
local last = tonumber(ARGV[3])  -- integer: the last one
local behind = topic == '' and '' or ':' .. topic
local found = {}
for minute = first, last do
  local figures = redis.pcall('HGETALL', FIGURES .. string.format('%d', minute) .. behind)
  if not figures.err and #figures > 0 then
    found[#found + 1], found[#found + 2] = minute, figures
  end
end
return found
