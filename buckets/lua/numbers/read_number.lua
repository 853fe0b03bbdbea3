#!lua flags=no-writes
-- Read the last number that the namespace gave out, or the job that a number names.
-- arrows: none
-- returns: the text; nothing where there is none, or another program's key is in its place
-- fails: never
-- repeat: yes
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local number = ARGV[1]  -- integer: whose alias is read, or empty for the last number
local key = number == '' and COUNTER or ALIAS .. number
local text = redis.pcall('GET', key)
return type(text) == 'string' and text
