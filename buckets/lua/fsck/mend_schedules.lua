#!lua flags=allow-oom
-- Make the entries of some schedules agree with their records, and set aside unreadable records.
-- arrows: none
-- returns: {cursor, names, faults}; see include/fsck/schedule_faults.lua
-- fails: never
-- repeat: yes
-- include: indexes schedules schedule_faults
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local buckets = tonumber(ARGV[2])  -- integer: the number of buckets that have a timer
local cursor = ARGV[3]  -- string: where to continue: 0 at first; the cursor returned is 0 after the last page

local function mend(name, schedule)
  if not schedule then return read_schedule(name) end
  if schedule.bucket >= buckets then
    index('ZREM', BUCKET .. schedule.bucket, SCHEDULE .. name)
    schedule.bucket = schedule.bucket % buckets
    return write_schedule(schedule)
  end
  write_entry(schedule)
end

return survey_schedules(cursor, buckets, mend)
