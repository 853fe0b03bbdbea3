#!lua flags=no-writes
-- Tell which jobs and schedules are known, and how far the shard is: what is not known now ended, if at all, before `now`.
-- arrows: none
-- returns: {us since the epoch, the word of the shard's stream or an empty string where it tells no events, then for each
--   1 if it has a record, of a job a live one or a tombstone, else 0}
-- fails: never
-- repeat: yes
-- include: clock
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local ids = {unpack(ARGV, 2)}  -- strings: the jobs, and `~` with the names of schedules
local events, stream = unpack(redis.call('HMGET', meta, 'events', 'stream'))
local reply = {string.format('%d', now_us), events and stream or ''}
for _, id in ipairs(ids) do
  local name = string.match(id, '^' .. SCHEDULE .. '(.*)$')
  local known = name and redis.pcall('HEXISTS', SCHEDULES, name) or not name and redis.call('EXISTS', JOB .. id)
  reply[#reply + 1] = known == 1 and 1 or 0
end
return reply
