#!lua flags=no-writes
-- The counts of a topic and how long its oldest ready job has waited.
-- arrows: none
-- returns: {now in ms, since when the oldest ready job is ready or 0, field, count, field, count, …}
-- fails: never
-- repeat: yes
-- include: time
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local topic = ARGV[2]  -- string: which

-- Since when the job of a ready entry is ready, or nil for a stale entry.
local function since(entry)
  local number, id = string.match(entry, '^(%d+):(.+)$')
  local raw = id and redis.pcall('GETRANGE', JOB .. id, 0, 33)
  if type(raw) ~= 'string' or #raw < 34 or string.byte(raw, 3) % 8 ~= 2 then return nil end
  if struct.unpack('>I4', raw, 31) ~= tonumber(number) then return nil end
  return (struct.unpack('>I6', raw, 19))
end

local oldest = 0
for priority = 0, 9 do
  -- A few are enough: what a pop would meet first. Behind many stale entries the age is not known.
  for _, entry in ipairs(redis.pcall('LRANGE', READY .. priority .. ':' .. topic, 0, 19)) do
    local at = since(entry)
    if at then
      oldest = oldest == 0 and at or math.min(oldest, at)
      break
    end
  end
end
local answer = redis.pcall('HGETALL', COUNTS .. topic)
if answer.err then answer = {} end  -- another program's key: the next move begins it anew
table.insert(answer, 1, oldest)
table.insert(answer, 1, now_ms)
return answer
