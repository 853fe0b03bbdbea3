#!lua
-- Import schedules from another Redis, as they were; a name that already exists here is left unchanged.
-- arrows: none
-- returns: a list: for each schedule 1, or 0 if its name already exists
-- fails: never
-- repeat: yes
-- include: indexes events append schedules
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local by = ARGV[2]  -- string: the instance and any actor, recorded in events
local bucket = tonumber(ARGV[3])  -- integer: the bucket whose turn it is
local buckets = tonumber(ARGV[4])  -- integer: the number of buckets
local schedules = {unpack(ARGV, 5)}  -- strings: entry, value, … as export_schedules.lua returned them, without duplicates
-- A value is the length of the record (4 bytes), the record (empty if an earlier call imported it), and occurrences.

local function write(name, record)
  local schedule = parse_schedule(name, record)
  if not schedule then
    keep_aside(SCHEDULE .. name, record)
    return
  end
  schedule.bucket = bucket % buckets
  write_schedule(schedule)
  if told then
    append(told, SCHEDULE .. name, string.rep('\0', 7) .. schedule_head(schedule) .. schedule.definition)
  end
end

local function import(name, value)
  local length = struct.unpack('>I4', value)
  local known = read_schedule(name)
  if length > 0 and not known then write(name, string.sub(value, 5, 4 + length)) end
  if known or length > 0 then
    local occurrences = {}
    for each in string.gmatch(string.sub(value, 5 + length), '[^\n]+') do
      append(occurrences, string.match(each, '^%d+'), each)
    end
    if #occurrences > 0 then index('ZADD', OCCURRENCES .. name, unpack(occurrences)) end
  end
  return known and 0 or 1
end

ask_for_events()
local results = {}
for at = 1, #schedules, 2 do results[#results + 1] = import(string.sub(schedules[at], 2), schedules[at + 1]) end
if told then tell_all(VERB_SCHEDULE, 0) end
return results
