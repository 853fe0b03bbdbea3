#!lua flags=allow-oom
-- Set aside a key that does not hold what its name implies.
-- arrows: none
-- returns: 1, or 0 if the key is gone or holds what it should
-- fails: never
-- repeat: yes
-- include: indexes
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local suffix = ARGV[1]  -- string: the key without its hash tag
local wanted = ARGV[2]  -- string: a Redis type, `moment` (ms, in digits) or `lock` (a string that expires)
local suspect = TAG .. suffix

local function is_right(kind)
  if wanted == 'moment' then
    return kind == 'string' and string.match(redis.call('GET', suspect), '^%d+$') ~= nil
  end
  if wanted == 'lock' then return kind == 'string' and redis.call('PTTL', suspect) >= 0 end
  return kind == wanted
end

local kind = redis.call('TYPE', suspect).ok
if kind == 'none' or is_right(kind) then return 0 end
local dump = redis.call('DUMP', suspect)
redis.call('UNLINK', suspect)
keep_aside(suspect, dump)
redis.call('SPUBLISH', BELL, 'aside ' .. suspect)
return 1
