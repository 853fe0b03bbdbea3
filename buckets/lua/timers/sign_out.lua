#!lua flags=allow-oom
-- Take an instance off the list of members, and remove its card.
-- arrows: none
-- returns: nothing
-- fails: never
-- repeat: yes
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local token = ARGV[1]  -- string: the token of this instance
redis.pcall('ZREM', MEMBERS, token)
redis.pcall('HDEL', CARDS, token)
