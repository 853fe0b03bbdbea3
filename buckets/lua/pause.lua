#!lua flags=allow-oom
-- Let the pops of a topic find nothing, for a while or until it is resumed; what is due becomes ready all the same.
-- arrows: none
-- returns: until when, in ms since the epoch; 0 for until it is resumed
-- fails: never
-- repeat: yes
-- include: time layout index plan record moves
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local topic = ARGV[2]  -- string: which
local span = tonumber(ARGV[3])  -- integer: ms, or empty
plan.topics[topic] = now_ms
commit()
local ends = span and from_ms + span or 0
if span then
  redis.call('SET', PAUSED .. topic, whole(ends), 'PX', whole(span))
else
  redis.call('SET', PAUSED .. topic, '0')
end
redis.call('SPUBLISH', BELL, 'ready 1 ' .. topic)  -- who waits for the end of an earlier pause must learn of this one's
return ends
