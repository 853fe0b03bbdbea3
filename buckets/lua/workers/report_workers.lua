#!lua flags=allow-oom
-- Keep what an instance knows about the workers that poll through it.
-- arrows: none
-- returns: OK
-- fails: never
-- repeat: yes
-- include: clock
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local token = ARGV[2]  -- string: the token of this instance
local life = ARGV[3]  -- integer: ms for which the report is kept
local report = ARGV[4]  -- string: JSON
return redis.call('SET', WORKERS .. token, string.format('%d ', now_ms) .. report, 'PX', life)
