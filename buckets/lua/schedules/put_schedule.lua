#!lua
-- Restore a schedule from a journal, unless the schedule of that name is not the one that the caller has seen.
-- arrows: none
-- returns: 1, or 0 if nothing was done
-- fails: never
-- repeat: yes
-- include: indexes events append schedules
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local by = ARGV[2]  -- string: the instance and any actor, recorded in events
local id = ARGV[3]  -- string: the name of the schedule
local seen = tonumber(ARGV[4])  -- integer: the revision of the schedule that it replaces, 0 for none
local bucket = tonumber(ARGV[5])  -- integer: the bucket for the entry of a new schedule
local record = ARGV[6]  -- string: its record
local occurrences = {unpack(ARGV, 7)}  -- strings: ms, the end of the id, … for each occurrence that may be live
local old, schedule = read_schedule(id), parse_schedule(id, record)
if not schedule or (old and old.revision or 0) ~= seen then return 0 end
schedule.bucket, schedule.last = old and old.bucket or bucket, math.max(schedule.last, old and old.last or 0)
ask_for_events()
write_schedule(schedule)
if #occurrences > 0 then index('ZADD', OCCURRENCES .. id, unpack(occurrences)) end
if told then
  append(told, SCHEDULE .. id, string.rep('\0', 7) .. schedule_head(schedule) .. schedule.definition)
  tell_all(VERB_RESTORE, 0)
end
return 1
