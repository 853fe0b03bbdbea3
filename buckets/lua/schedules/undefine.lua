#!lua flags=allow-oom
-- Remove a schedule; the occurrences that were made stay, and forget_occurrences.lua returns those that may be live.
-- arrows: none
-- returns: {result, last}: removed, or changed if nothing was done because of a newer definition; the last occurrence (ms)
-- fails: NOT_FOUND
-- repeat: no
-- include: indexes events append schedules
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local by = ARGV[2]  -- string: the instance and any actor, recorded in events
local id = ARGV[3]  -- string: the name of the schedule
local seen = tonumber(ARGV[4])  -- integer: the revision that the caller has read
local schedule = read_schedule(id)
if not schedule then return redis.error_reply('NOT_FOUND ') end
if schedule.revision ~= seen then return {'changed', 0} end
ask_for_events()
index('HDEL', SCHEDULES, id)
index('ZREM', BUCKET .. schedule.bucket, SCHEDULE .. id)
if told then
  append(told, SCHEDULE .. id, string.rep('\0', 7))
  tell_all(VERB_UNSCHEDULE, 0)
end
return {'removed', schedule.last}
