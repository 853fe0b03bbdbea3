#!lua flags=no-writes
-- Count the jobs of topics by their states.
-- arrows: none
-- returns: for each topic four numbers: delayed, ready, reserved, dead
-- fails: never
-- repeat: yes
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local topics = {unpack(ARGV, 1)}  -- strings: which
local reply = {}
for _, topic in ipairs(topics) do
  local counts = redis.pcall('HMGET', COUNTS .. topic, 'delayed', 'ready', 'reserved', 'dead')
  -- A key of another program: the next move replaces it.
  for place = 1, 4 do reply[#reply + 1] = not counts.err and counts[place] or 0 end
end
return reply
