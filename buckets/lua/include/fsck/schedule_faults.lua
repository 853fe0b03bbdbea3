-- include: clock indexes append schedules faults
-- What the records of schedules require of their entries, and what is wrong with these. Reads only.
local SCANNED = 20  -- at a time: their bodies are read with them
local AGAIN = 1000  -- ms until the entry of one whose time has come is met again, see due.lua

-- Whether its timer would miss the next time.
local function is_missed(schedule, buckets)
  if schedule.next == 0 then return false end  -- its entry, if any, is one too many
  if schedule.bucket >= buckets then return true end
  local at = score_in(BUCKET .. schedule.bucket, SCHEDULE .. schedule.name)
  local is_met = schedule.next <= now_ms and at and at <= now_ms + AGAIN
  return at ~= schedule.next and not is_met
end

-- Look at some schedules. `mend(name, schedule)` is called for each fault; without a schedule, its record cannot be read. The
-- reply: the next cursor; the names; faults as {name, fault, …}. Buckets from `buckets` on have no timer.
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
