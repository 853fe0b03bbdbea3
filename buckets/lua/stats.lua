#!lua flags=no-writes
-- The counts of a topic and how long its oldest ready job has waited.
-- arrows: none
-- returns: {now in ms, since when the oldest ready job is ready or 0, field, count, field, count, …}
-- fails: never
-- repeat: yes
-- include: time layout index record look
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local topic = ARGV[2]  -- string: which

-- Since when the job of a ready entry is ready, or nil for a stale entry.
local function since(entry)
  local number, id = string.match(entry, '^(%d+):(.+)$')
  local job = id and look(id, ready, topic)
  return job and job.number == tonumber(number) and job.next or nil
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
