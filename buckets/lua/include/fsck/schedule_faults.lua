-- include: clock indexes append schedules faults
-- What the records of schedules require of their entries, and what is wrong with the entries. Only reads.
local SCANNED = 20  -- schedules at a time: their bodies are read with them
local AGAIN = 1000  -- ms until the timer meets the entry of a due schedule again, see due.lua

-- Whether the timer would miss the schedule's next time.
local function is_missed(schedule, buckets)
  if schedule.next == 0 then return false end  -- an entry, if there is one, is superfluous
  if schedule.bucket >= buckets then return true end
  local at = score_in(BUCKET .. schedule.bucket, SCHEDULE .. schedule.name)
  local is_met = schedule.next <= now_ms and at and at <= now_ms + AGAIN
  return at ~= schedule.next and not is_met
end

-- Check some schedules. `mend(name, schedule)` is called for each fault; `schedule` is nil if its record cannot be read.
-- Returns the next cursor; the names; and faults as {name, fault, …}. Buckets from number `buckets` on have no timer.
local function survey_schedules(cursor, buckets, mend)
  local found = redis.pcall('HSCAN', SCHEDULES, cursor, 'COUNT', whole(SCANNED))
  if found.err then return {'0', {}, {}} end  -- another program's key is in its place
  local names, faults, pairs_found = {}, {}, found[2]
  for at = 1, #pairs_found, 2 do
    local name = pairs_found[at]
    local schedule = parse_schedule(name, pairs_found[at + 1])
    local fault = not schedule and 'unreadable' or is_missed(schedule, buckets) and 'unscheduled'
    names[#names + 1] = name
    if fault then
      append(faults, name, fault)
      mend(name, schedule)
    end
  end
  return {found[1], names, faults}
end
