#!lua flags=no-writes
-- Find commands that the user of the connection may not run.
-- arrows: none
-- returns: those commands; not those that the server does not know, or says nothing about
-- fails: never
-- repeat: yes
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local bell = ARGV[1]  -- string: the argument of each: a name of the shard's own
local commands = {unpack(ARGV, 2)}  -- strings: their names
local MOST = 8
local found = {}
for _, command in ipairs(commands) do
  -- Some servers say nothing about a wrong number of arguments, and others must not be given too few.
  for number = MOST, 0, -1 do
    local call = {command}
    for place = 1, number do call[place + 1] = bell end
    local told, may = pcall(redis.acl_check_cmd, unpack(call))
    if told then
      if not may then found[#found + 1] = command end
      break
    end
  end
end
return found
