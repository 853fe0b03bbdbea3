#!lua flags=allow-oom
-- Take or keep the lock of a shard's reader, or give it up.
-- arrows: none
-- returns: 1 if this reader holds it now, else 0
-- fails: never
-- repeat: yes
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local token = ARGV[1]  -- string: of the reader
local ms = ARGV[2]  -- integer: for how long; 0: give it up
local holder = redis.pcall('GET', LOCK .. 'journal')
if type(holder) ~= 'table' and holder and holder ~= token then return 0 end
if ms == '0' then
  redis.call('UNLINK', LOCK .. 'journal')
  return 0
end
redis.call('SET', LOCK .. 'journal', token, 'PX', ms)
return 1
