#!lua flags=allow-oom
-- Pause a topic for a while or until it is resumed: its pops find nothing, but due jobs still become ready.
-- arrows: none
-- returns: when the pause ends, in ms since the epoch; or 0 if only a resume ends it
-- fails: never
-- repeat: yes
-- include: clock indexes planned_writes append events
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local by = ARGV[2]  -- string: the instance and any actor, recorded in events
local topic = ARGV[3]  -- string: the topic
local span = tonumber(ARGV[4])  -- integer: ms, or empty for a pause until it is resumed
local ends = span and from_ms + span or 0
plan.topics[topic] = now_ms
if told then append(told, '', '\0' .. struct.pack('>I6', ends) .. topic) end
commit(VERB_PAUSE)
if span then
  redis.call('SET', PAUSED .. topic, whole(ends), 'PX', whole(span + longer))
else
  redis.call('SET', PAUSED .. topic, '0')
end
redis.call('SPUBLISH', BELL, 'ready 1 ' .. topic)  -- pops that wait for the end of an earlier pause must learn when this one ends
return ends
