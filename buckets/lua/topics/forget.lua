#!lua flags=allow-oom
-- Forget topics that have had no job for a long time. A topic that has jobs is in use.
-- arrows: none
-- returns: {looked, forgotten}: how many topics were looked at, and how many of them were forgotten
-- fails: never
-- repeat: yes
-- include: clock indexes
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local idle = tonumber(ARGV[2])  -- integer: ms without a job after which a topic is forgotten
local page = ARGV[3]  -- integer: topics at most

-- A pause may be over before Redis removes its key.
local function in_use(topic)
  local ends = redis.pcall('GET', PAUSED .. topic)
  local is_over = type(ends) == 'string' and ends ~= '0' and (tonumber(ends) or now_ms + 1) <= now_ms
  if (ends and not is_over) or redis.call('EXISTS', DEAD .. topic) > 0 then return true end
  for _, jobs in ipairs(index('HMGET', COUNTS .. topic, 'delayed', 'ready', 'blocked', 'reserved', 'dead')) do
    if jobs and jobs ~= '0' then return true end
  end
  return false
end

local topics = index('ZRANGE', TOPICS, '-inf', whole(now_ms - idle), 'BYSCORE', 'LIMIT', '0', page)
local forgotten = 0
for _, topic in ipairs(topics) do
  if in_use(topic) then
    index('ZADD', TOPICS, whole(now_ms), topic)
  else
    drop_lists(topic)
    redis.call('UNLINK', COUNTS .. topic, DUE .. topic, PAUSED .. topic)
    index('ZREM', TOPICS, topic)
    forgotten = forgotten + 1
  end
end
return {#topics, forgotten}
