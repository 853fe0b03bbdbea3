#!lua
-- Store an operation that must be planned, and ring for the instance that plans it.
-- arrows: none
-- returns: 1, or 0 if the list is full of operations that have not ended
-- fails: never
-- repeat: yes
-- include: clock indexes
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local operation = ARGV[2]  -- string: its id
local most = tonumber(ARGV[3])  -- integer: the most operations in the list
local lasts = ARGV[4]  -- integer: ms for which its record is kept
local fields = {unpack(ARGV, 5)}  -- strings: field, value, field, value, …
local UNENDED = ' planning waiting running paused '

-- Whether there is room for one more operation; if not, the oldest one that has ended is removed to make room.
local function has_room()
  if index('ZCARD', OPERATIONS) < most then return true end
  for _, id in ipairs(index('ZRANGE', OPERATIONS, '0', '-1')) do
    local state = index('HGET', OPERATION .. id, 'state')
    if not state or not string.find(UNENDED, ' ' .. state .. ' ', 1, true) then
      index('ZREM', OPERATIONS, id)
      redis.call('UNLINK', OPERATION .. id)
      return true
    end
  end
  return false
end

if not has_room() then return 0 end
index('ZADD', OPERATIONS, whole(now_ms), operation)
index('HSET', OPERATION .. operation, unpack(fields))
redis.call('PEXPIRE', OPERATION .. operation, lasts)
redis.call('SPUBLISH', BELL, 'operation')
return 1
