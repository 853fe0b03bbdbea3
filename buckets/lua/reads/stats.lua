#!lua flags=no-writes
-- Read the counts of a topic and since when its oldest ready job has waited.
-- arrows: none
-- returns: {now in ms, since when the oldest ready job has been ready or 0, field, count, field, count, …}
-- fails: never
-- repeat: yes
-- include: clock peek_job
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local topic = ARGV[2]  -- string: which

-- Since when an entry's job has been ready, or nil for a stale entry.
local function since(entry)
  local number, id = string.match(entry, '^(%d+):(.+)$')
  local job = id and peek_job(id, ready, topic)
  return job and job.number == tonumber(number) and job.next or nil
end

local oldest = 0
for priority = 0, 9 do
  -- A few are enough: those that a pop would meet first. Behind many stale entries the age is unknown.
  for _, entry in ipairs(redis.pcall('LRANGE', READY .. priority .. ':' .. topic, 0, 19)) do
    local at = since(entry)
    if at then
      oldest = oldest == 0 and at or math.min(oldest, at)
      break
    end
  end
end
local answer = redis.pcall('HGETALL', COUNTS .. topic)
if answer.err then answer = {} end  -- a key of another program: the next move replaces it
table.insert(answer, 1, oldest)
table.insert(answer, 1, now_ms)
return answer
