#!lua flags=allow-oom
-- Keep the locks of a shard's timers that are ours, and take those that nobody has.
-- arrows: none
-- returns: a list, for each bucket 1 when its lock is ours now
-- fails: NO_META when the shard's settings are gone
-- repeat: yes
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local token = ARGV[1]  -- string: who asks
local lease = ARGV[2]  -- integer: ms until a lock falls free
local buckets = tonumber(ARGV[3])  -- integer: how many there are
local locks = {}
for number = 1, buckets do locks[number] = LOCK .. (number - 1) end
if redis.call('EXISTS', meta) == 0 then return redis.error_reply('NO_META ') end
local owners = redis.call('MGET', unpack(locks))
local ours = {}
for number = 1, buckets do
  local owner = owners[number]
  -- A lock without an end is none of ours; left alone, it would stop its timer for ever.
  local free = not owner or owner == token or redis.call('PTTL', locks[number]) == -1
  ours[number] = free and 1 or 0
  if ours[number] == 1 then redis.call('SET', locks[number], token, 'PX', lease) end
end
return ours
