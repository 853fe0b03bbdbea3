#!lua
-- Define a schedule, unless another definition was written since the caller read it.
-- arrows: none
-- returns: {result, next}: created, existing for the same definition as before, replaced, or changed if nothing was done
--   because there is a newer definition; the next time of the schedule (ms), 0 for none
-- fails: never
-- repeat: yes
-- include: clock events append schedules
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local by = ARGV[2]  -- string: the instance and any actor, recorded in events
local id = ARGV[3]  -- string: the name of the schedule
local seen = tonumber(ARGV[4])  -- integer: the revision that the caller has read, 0 for none
local start = tonumber(ARGV[5])  -- integer: ms since the epoch from which an interval counts
local next_ms = tonumber(ARGV[6])  -- integer: ms since the epoch, the next time; 0 for none
local bucket = tonumber(ARGV[7])  -- integer: the bucket for the entry of a new schedule
local definition = ARGV[8]  -- string: the definition
local old = read_schedule(id)
if old and old.definition == definition then return {'existing', old.next} end
local revision = old and old.revision or 0
if revision ~= seen then return {'changed', 0} end
local schedule = {name = id, bucket = old and old.bucket or bucket, revision = math.max(now_us, revision + 1), start = start,
  next = next_ms, last = old and old.last or 0, definition = definition}
ask_for_events()
write_schedule(schedule)
if told then
  append(told, SCHEDULE .. id, string.rep('\0', 7) .. schedule_head(schedule) .. definition)
  tell_all(VERB_SCHEDULE, 0)
end
return {old and 'replaced' or 'created', next_ms}
