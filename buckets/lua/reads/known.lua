#!lua flags=no-writes
-- Tell which jobs are known, and how far the shard is: what is not known now was ended, if at all, by an event before `now`.
-- arrows: none
-- returns: {us since the epoch, the word of the shard's stream or an empty string where it tells no events, then for each job
--   1 if it has a record, live or a tombstone, else 0}
-- fails: never
-- repeat: yes
-- include: clock
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local ids = {unpack(ARGV, 2)}  -- strings: the jobs
local events, stream = unpack(redis.call('HMGET', meta, 'events', 'stream'))
local reply = {string.format('%d', now_us), events and stream or ''}
for _, id in ipairs(ids) do reply[#reply + 1] = redis.call('EXISTS', JOB .. id) end
return reply
