#!lua flags=allow-oom
-- Let the pops of a topic find nothing, for a while or until it is resumed; what is due becomes ready all the same.
-- arrows: none
-- returns: until when, in ms since the epoch; 0 for until it is resumed
-- fails: never
-- repeat: yes
-- include: time record moves
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local topic = ARGV[2]  -- string: which
local span = tonumber(ARGV[3])  -- integer: ms, or empty
plan.topics[topic] = now_ms
commit()
if not span then
  redis.call('SET', PAUSED .. topic, '0')
  return 0
end
redis.call('SET', PAUSED .. topic, whole(from_ms + span), 'PX', whole(span))
return from_ms + span
