#!lua flags=no-writes
-- Find commands that the user of the connection may not run.
-- arrows: none
-- returns: the forbidden commands, without those that the server does not know or cannot check
-- fails: never
-- repeat: yes
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local bell = ARGV[1]  -- string: passed as every argument of the commands: a name that belongs to the shard
local commands = {unpack(ARGV, 2)}  -- strings: the names of the commands to check
local MOST = 8
local found = {}
for _, command in ipairs(commands) do
  -- Some servers raise an error for a wrong number of arguments, and others must not be called with too few.
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
