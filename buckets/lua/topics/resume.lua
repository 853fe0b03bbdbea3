#!lua flags=allow-oom
-- End the pause of a topic, and wake the pops that wait for its jobs.
-- arrows: none
-- returns: 1 if it was paused, else 0
-- fails: never
-- repeat: yes
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local topic = ARGV[1]  -- string: which
local was = redis.call('DEL', PAUSED .. topic)
local jobs = tonumber(redis.pcall('HGET', COUNTS .. topic, 'ready'))
if jobs and jobs > 0 then redis.call('SPUBLISH', BELL, 'ready ' .. jobs .. ' ' .. topic) end
return was
