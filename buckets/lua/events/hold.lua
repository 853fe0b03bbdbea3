#!lua flags=allow-oom
-- Acquire, keep or release the lock of a shard's reader.
-- arrows: none
-- returns: 1 if this reader holds the lock now, else 0
-- fails: never
-- repeat: yes
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local token = ARGV[1]  -- string: the token of the reader
local ms = ARGV[2]  -- integer: ms for which to hold the lock, or 0 to release it
local holder = redis.pcall('GET', LOCK .. 'journal')
if type(holder) ~= 'table' and holder and holder ~= token then return 0 end
if ms == '0' then
  redis.call('UNLINK', LOCK .. 'journal')
  return 0
end
redis.call('SET', LOCK .. 'journal', token, 'PX', ms)
return 1
