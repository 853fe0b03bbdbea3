#!lua flags=allow-oom
-- Give up the locks of a shard's timers that are ours, and tell the others.
-- arrows: none
-- returns: how many were ours
-- fails: never
-- repeat: yes
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local token = ARGV[1]  -- string: who asks
local buckets = tonumber(ARGV[2])  -- integer: how many there are
local given = 0
for number = 0, buckets - 1 do
  if redis.pcall('GET', LOCK .. number) == token then
    redis.call('DEL', LOCK .. number)
    given = given + 1
  end
end
if given > 0 then redis.call('SPUBLISH', BELL, 'free') end
return given
