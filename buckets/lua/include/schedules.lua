-- include: indexes timer_alarm
-- Schedules. A record is a header (buckets/layout.py) and a definition, which scripts do not read.
-- The schedule that a string holds, or nil if the string is not a record of ours.
local function parse_schedule(name, raw)
  if #raw < SCHEDULE_LENGTH or string.byte(raw) ~= VERSION then return nil end
  local _, length, at_bucket, revision, start, next_ms, last = struct.unpack(SCHEDULE_HEADER, raw)
  if length < SCHEDULE_LENGTH or length > #raw then return nil end
  return {name = name, bucket = at_bucket, revision = revision, start = start, next = next_ms, last = last,
    definition = string.sub(raw, length + 1)}
end

-- The schedule of a name, or nil if there is none. An unreadable record is set aside, as for a job.
local function read_schedule(name)
  local raw = index('HGET', SCHEDULES, name)
  local schedule = raw and parse_schedule(name, raw)
  if raw and not schedule then
    keep_aside(SCHEDULE .. name, raw)
    redis.call('HDEL', SCHEDULES, name)
    redis.call('SPUBLISH', BELL, 'aside ' .. SCHEDULE .. name)
  end
  return schedule
end

local function schedule_head(schedule)
  return struct.pack(SCHEDULE_HEADER, VERSION, SCHEDULE_LENGTH, schedule.bucket, schedule.revision, schedule.start,
    schedule.next, schedule.last)
end

-- Write the entry at the next time, or remove it if there is none. The entry of a schedule that `waits` stays where the timer
-- has put it.
local function write_entry(schedule)
  local set, entry = BUCKET .. schedule.bucket, SCHEDULE .. schedule.name
  if schedule.next == 0 then return index('ZREM', set, entry) end
  if schedule.waits then return end
  local alarms = needs_alarm(set, schedule.next)
  index('ZADD', set, whole(schedule.next), entry)
  if alarms then redis.call('SPUBLISH', BELL, 'due ' .. schedule.bucket) end
end

local function write_schedule(schedule)
  write_entry(schedule)
  index('HSET', SCHEDULES, schedule.name, schedule_head(schedule) .. schedule.definition)
end
