#!lua flags=no-writes
-- Read operations, the newest first.
-- arrows: none
-- returns: a list: for each operation {id, field, value, field, value, …}
-- fails: never
-- repeat: yes
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local states = ARGV[1]  -- string: the states of the operations to read, each between blanks, or empty for all
local count = tonumber(ARGV[2])  -- integer: operations at most
local fields = {unpack(ARGV, 3)}  -- strings: the fields to read
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
