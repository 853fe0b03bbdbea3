#!lua flags=no-writes
-- Read the records of jobs and schedules for a journal, with the position in the event stream to which they apply.
-- arrows: none
-- returns: {now (us), the last id of the stream, record or empty, …}: a record for each id, up to and including the one that
--   exceeds the bytes
-- fails: never
-- repeat: yes
-- include: clock event_stream
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local most_bytes = tonumber(ARGV[2])  -- integer: ids that remain after this many bytes are left for another call
local ids = {unpack(ARGV, 3)}  -- ids of jobs, and names of schedules after a `~`

local answer, bytes = {now_us, last_event()}, 0
for number, id in ipairs(ids) do
  local name = string.match(id, '^' .. SCHEDULE .. '(.*)$')
  local record = name and redis.pcall('HGET', SCHEDULES, name) or not name and redis.pcall('GET', JOB .. id)
  answer[number + 2] = type(record) == 'string' and record or ''
  bytes = bytes + #answer[number + 2]
  if bytes > most_bytes then break end
end
return answer
