#!lua flags=no-writes
-- Count the jobs of topics by their states.
-- arrows: none
-- returns: for each topic five numbers: delayed, ready without blocked ones, reserved, dead, blocked
-- fails: never
-- repeat: yes
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local topics = {unpack(ARGV, 1)}  -- strings: the topics
local reply = {}
for _, topic in ipairs(topics) do
  local counts = redis.pcall('HMGET', COUNTS .. topic, 'delayed', 'ready', 'reserved', 'dead', 'blocked')
  -- If the key is another program's, the next move replaces it.
  for place = 1, 5 do reply[#reply + 1] = not counts.err and counts[place] or 0 end
end
return reply
