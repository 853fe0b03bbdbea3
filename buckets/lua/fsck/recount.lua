#!lua flags=allow-oom
-- Correct counts of a topic, unless they have changed since they were read.
-- arrows: none
-- returns: 1, or 0 if the counts have changed and nothing was done
-- fails: never
-- repeat: yes
-- include: clock indexes
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local family = ARGV[2]  -- string: c for the counts, h for the histogram
local topic = ARGV[3]  -- string: the topic
local fields = {unpack(ARGV, 4)}  -- strings: field, value as read, value wanted, …; an empty value stands for a missing field

local hash = (family == 'c' and COUNTS or DUE) .. topic
for at = 1, #fields, 3 do
  if (redis.call('HGET', hash, fields[at]) or '') ~= fields[at + 1] then return 0 end
end
for at = 1, #fields, 3 do
  if fields[at + 2] == '' then
    redis.call('HDEL', hash, fields[at])
  else
    redis.call('HSET', hash, fields[at], fields[at + 2])
  end
end
-- A topic with counts is in the list of topics, and a topic without ready jobs has no ready lists.
if redis.call('EXISTS', COUNTS .. topic) == 1 and not index('ZSCORE', TOPICS, topic) then
  index('ZADD', TOPICS, whole(now_ms), topic)
end
-- Only once the count is right: a lost count does not mean that nothing is ready.
if family == 'c' and #fields > 0 and (tonumber(redis.call('HGET', hash, 'ready')) or 0) == 0 then drop_lists(topic) end
return 1
