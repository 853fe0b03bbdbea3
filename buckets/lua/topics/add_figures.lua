#!lua
-- Add what a process has counted to the figures of this minute.
-- arrows: none
-- returns: OK
-- fails: never
-- repeat: no
-- include: clock indexes
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local kept = tonumber(ARGV[2])  -- integer: ms for which the figures of all topics together are kept
local kept_by_topic = tonumber(ARGV[3])  -- integer: ms for which the figures of a topic are kept
local most = tonumber(ARGV[4])  -- integer: topics that may have figures of their own at a time
local counted = {unpack(ARGV, 5)}  -- strings: for each topic: topic (empty for all together), how many fields, field, number, …
local MARGIN = 120000  -- extra ms, so that the first of the minutes that are kept can still be read completely
local minute = FIGURES .. whole(math.floor(now_ms / 60000))

-- Whether a topic may have figures of its own: it already has some, or there is room for one more topic, or the figures of
-- the oldest topic have expired. This bounds their memory, whichever topics each process knows.
local function has_room(topic)
  if not index('ZSCORE', FIGURED, topic) and index('ZCARD', FIGURED) >= most then
    local oldest = index('ZRANGE', FIGURED, '0', '0', 'WITHSCORES')
    if not oldest[2] or tonumber(oldest[2]) > now_ms - kept_by_topic - MARGIN then return false end
    index('ZREM', FIGURED, oldest[1])
  end
  index('ZADD', FIGURED, whole(now_ms), topic)
  return true
end

local place = 1
while place < #counted do
  local topic, last = counted[place], place + 1 + 2 * counted[place + 1]
  local key = topic == '' and minute or minute .. ':' .. topic
  if topic == '' or has_room(topic) then
    for at = place + 2, last, 2 do index('HINCRBY', key, counted[at], counted[at + 1]) end
    redis.call('PEXPIRE', key, whole((topic == '' and kept or kept_by_topic) + MARGIN + longer))
  end
  place = last + 1
end
redis.call('PEXPIRE', FIGURED, whole(kept_by_topic + MARGIN + longer))
return redis.status_reply('OK')
