#!lua flags=no-writes
-- Read the last number that the namespace assigned, or the job that a number names.
-- arrows: none
-- returns: the number, or the job's id; nothing if there is none, or if another program's key is in its place
-- fails: never
-- repeat: yes
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local number = ARGV[1]  -- integer: the number whose job is read, or empty for the last number
local key = number == '' and COUNTER or ALIAS .. number
local text = redis.pcall('GET', key)
return type(text) == 'string' and text
