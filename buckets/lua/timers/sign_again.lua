#!lua flags=allow-oom
-- Sign in again as a live instance, without reading who else did.
-- arrows: none
-- returns: 1, or 0 if the list does not hold this instance
-- fails: never
-- repeat: yes
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local token = ARGV[1]  -- string: of this instance
local at = ARGV[2]  -- integer: ms since the epoch; Redis's time by what it answered last, and the time since then
return redis.pcall('ZADD', MEMBERS, 'XX', 'CH', at, token) == 1 and 1 or 0
