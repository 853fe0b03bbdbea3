#!lua flags=no-writes
-- Read the lifetime totals of topics, with the position in the event stream to which they apply.
-- arrows: none
-- returns: {now (us), the last id of the stream, created, finished, deleted, replaced, …}: four numbers for each topic
-- fails: never
-- repeat: yes
-- include: clock event_stream
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local topics = {unpack(ARGV, 2)}  -- strings: topics

local answer = {now_us, last_event()}
for _, topic in ipairs(topics) do
  local counts = redis.pcall('HMGET', COUNTS .. topic, 'created', 'finished', 'deleted', 'replaced')
  for place = 1, 4 do answer[#answer + 1] = tonumber(counts[place] or 0) or 0 end
end
return answer
