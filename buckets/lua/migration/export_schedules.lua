#!lua flags=allow-oom
-- Export schedules to another Redis: they are removed here, and kept in a hash until that Redis has them.
-- arrows: none
-- returns: {looked, left, hash, entry, value, …}: how many of the names were looked at, and for how many of these something
--   is left to export later; the hash; and what was exported, in the form that import_schedules.lua reads
-- fails: never
-- repeat: yes
-- include: clock indexes events append record schedules
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local by = ARGV[2]  -- string: the instance and any actor, recorded in events
local batch = ARGV[3]  -- string: hexadecimal digits, unique to this call
local room = tonumber(ARGV[4])  -- integer: bytes at most, but always one schedule
local most = tonumber(ARGV[5])  -- integer: the most occurrences of a schedule to export at a time, of those that may be live
local names = {unpack(ARGV, 6)}  -- strings: names of schedules, or of sets of occurrences, without duplicates
local hash = EXPORTED .. whole(now_ms) .. ':' .. batch
local kept, taken, looked, left = {}, {}, 0, 0

-- Whether the schedule's last occurrence is delayed, ready or reserved here. Then the schedule is exported only after that
-- job: if occurrences must not overlap, the next one must find the last one.
local function has_last_here(schedule)
  local last = whole(schedule.last)
  for _, each in ipairs(index('ZRANGE', OCCURRENCES .. schedule.name, last, last, 'BYSCORE')) do
    local job = read_job(schedule.name .. '@' .. each)
    if job and job.state <= reserved then return true end
  end
  return false
end

local function plan_export(name)
  local schedule = read_schedule(name)
  if schedule and has_last_here(schedule) then return true end
  local set = OCCURRENCES .. name
  local occurrences, all = index('ZRANGE', set, 0, most - 1), index('ZCARD', set)
  if not schedule and all == 0 then return false end
  local record = schedule and schedule_head(schedule) .. schedule.definition or ''
  local value = struct.pack('>I4', #record) .. record .. table.concat(occurrences, '\n')
  append(kept, SCHEDULE .. name, value)
  append(taken, {name = name, schedule = schedule, occurrences = occurrences})
  room = room - #value
  return #occurrences < all
end

local function take(each)
  if #each.occurrences > 0 then index('ZREM', OCCURRENCES .. each.name, unpack(each.occurrences)) end
  if not each.schedule then return end
  index('HDEL', SCHEDULES, each.name)
  index('ZREM', BUCKET .. each.schedule.bucket, SCHEDULE .. each.name)
  if told then append(told, SCHEDULE .. each.name, string.rep('\0', 7)) end
end

ask_for_events()
for _, name in ipairs(names) do
  if plan_export(name) then left = left + 1 end
  looked = looked + 1
  if room <= 0 then break end
end
if #kept > 0 then redis.call('HSET', hash, unpack(kept)) end
for _, each in ipairs(taken) do take(each) end
if told then tell_all(VERB_UNSCHEDULE, 0) end
return {looked, left, hash, unpack(kept)}
