#!lua flags=allow-oom
-- Change an operation, if it is in one of some states; a new state rings for whoever carries it out.
-- arrows: none
-- returns: the state that it was in; empty if it is not known
-- fails: never
-- repeat: no
-- include: indexes
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local operation = ARGV[1]  -- string: its id
local states = ARGV[2]  -- string: those in which it is changed, each between blanks
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
