#!lua flags=no-writes
-- Report which jobs and schedules exist, and the time: a job or schedule that does not exist ended, if at all, before then.
-- arrows: none
-- returns: {us since the epoch, the word of the shard's stream, or empty if events are off, then for each id 1 if it has a
--   record (that of a live job, a tombstone or a schedule), else 0}
-- fails: never
-- repeat: yes
-- include: clock
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local ids = {unpack(ARGV, 2)}  -- strings: ids of jobs, and names of schedules after a `~`
local events, stream = unpack(redis.call('HMGET', meta, 'events', 'stream'))
local reply = {string.format('%d', now_us), events and stream or ''}
for _, id in ipairs(ids) do
  local name = string.match(id, '^' .. SCHEDULE .. '(.*)$')
  local known = name and redis.pcall('HEXISTS', SCHEDULES, name) or not name and redis.call('EXISTS', JOB .. id)
  reply[#reply + 1] = known == 1 and 1 or 0
end
return reply
