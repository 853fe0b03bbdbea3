#!lua flags=allow-oom
-- Change an operation if it is in one of the given states; a new state rings for the instance that carries it out.
-- arrows: none
-- returns: the state that it was in, or empty if the operation is unknown
-- fails: never
-- repeat: no
-- include: indexes
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local operation = ARGV[1]  -- string: its id
local states = ARGV[2]  -- string: the states in which it may be changed, each between blanks
local lasts = ARGV[3]  -- integer: ms for which its record is kept from now on
local fields = {unpack(ARGV, 4)}  -- strings: field, value, field, value, …
local key = OPERATION .. operation
local state = index('HGET', key, 'state')
if not state then return '' end
if string.find(states, ' ' .. state .. ' ', 1, true) then
  index('HSET', key, unpack(fields))
  redis.call('PEXPIRE', key, lasts)
  if fields[1] == 'state' then redis.call('SPUBLISH', BELL, 'operation') end
end
return state
