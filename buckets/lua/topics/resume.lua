#!lua flags=allow-oom
-- End the pause of a topic, and wake the pops that wait for its jobs.
-- arrows: none
-- returns: 1 if it was paused, else 0
-- fails: never
-- repeat: yes
-- include: clock events
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local by = ARGV[2]  -- string: the instance and any actor, recorded in events
local topic = ARGV[3]  -- string: the topic
local ends = redis.pcall('GET', PAUSED .. topic)
local was = redis.call('DEL', PAUSED .. topic)
if type(ends) == 'string' and ends ~= '0' and (tonumber(ends) or 0) <= now_ms then was = 0 end
ask_for_events()
if told and was == 1 then
  told[1], told[2] = '', string.rep('\0', 7) .. topic
  tell_all(VERB_RESUME, 0)
end
local jobs = tonumber(redis.pcall('HGET', COUNTS .. topic, 'ready'))
if jobs and jobs > 0 then redis.call('SPUBLISH', BELL, 'ready ' .. jobs .. ' ' .. topic) end
return was
