#!lua flags=no-writes
-- Read operations, the newest first.
-- arrows: none
-- returns: a list, for each {id, field, value, field, value, …}
-- fails: never
-- repeat: yes
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local states = ARGV[1]  -- string: only those in one of these states, each between blanks; empty: all
local count = tonumber(ARGV[2])  -- integer: at most so many
local fields = {unpack(ARGV, 3)}  -- strings: which of their fields
local ids = redis.pcall('ZREVRANGE', OPERATIONS, '0', '-1')
local operations = {}
for _, id in ipairs(ids.err and {} or ids) do
  if #operations == count then break end
  local state = redis.pcall('HGET', OPERATION .. id, 'state')
  if type(state) == 'string' and (states == '' or string.find(states, ' ' .. state .. ' ', 1, true)) then
    local operation, values = {id}, redis.call('HMGET', OPERATION .. id, unpack(fields))
    for at, name in ipairs(fields) do
      if values[at] then
        operation[#operation + 1] = name
        operation[#operation + 1] = values[at]
      end
    end
    operations[#operations + 1] = operation
  end
end
return operations
