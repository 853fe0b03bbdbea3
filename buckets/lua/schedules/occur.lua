#!lua
-- Make the occurrences of schedules whose time has come, and set the next time of each.
-- arrows: none -> delayed, none -> ready
-- returns: a list: for each schedule {next, outcome, …}: its next time (ms), 0 for none, or -1 if the schedule has changed
--   since the caller read it and nothing was done; and the outcome for each time: made; there, if the occurrence was made
--   before and is not forgotten; skipped, because the last one is not done; blocked by another job with its id; or full, if a
--   topic has as many jobs as it may have, so that the times from this one on must wait
-- fails: never
-- repeat: yes
-- include: clock indexes planned_writes record moves append events schedules pending_jobs
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local by = ARGV[2]  -- string: the instance and any actor, recorded in events
local bucket = tonumber(ARGV[3])  -- integer: the bucket of the occurrences
local met = ARGV[4]  -- integer: the bucket in which the timer met the entries
local plans = {unpack(ARGV, 5)}  -- strings: for each schedule name, revision, next as read, next, skips, copies, times, body;
-- for each copy suffix, most, front; for each time ms, due
-- No name occurs twice. Skips: 1 if an occurrence is skipped while the last one is delayed, ready or reserved, else 0.
-- Copies: how many follow, one for a topic, or one for each topic of a virtual topic. Times: how many follow. Suffix: what
-- follows the name, `@` and ms in the id of the copy. Most and front are as in add.lua. Times and due times are in ms since
-- the epoch.

local LOOKED_AT = 4  -- earlier occurrences at a time: so those that are done are forgotten faster than new ones are made

local function read_plan(at)
  local wanted = {name = plans[at], revision = tonumber(plans[at + 1]), seen = tonumber(plans[at + 2]),
    next = tonumber(plans[at + 3]), skips = plans[at + 4] == '1', body = plans[at + 7], copies = {}, times = {}}
  local copies, times = tonumber(plans[at + 5]), tonumber(plans[at + 6])
  at = at + 8
  for _ = 1, copies do
    append(wanted.copies, {suffix = plans[at], most = tonumber(plans[at + 1]), front = plans[at + 2]})
    at = at + 3
  end
  for _ = 1, times do
    append(wanted.times, {ms = tonumber(plans[at]), due = tonumber(plans[at + 1])})
    at = at + 2
  end
  return wanted, at
end

local function is_up_to(id, state)
  local job = read_job(id)
  return job and job.state <= state
end

-- Whether the last occurrence, or a copy of it, is delayed, ready or reserved.
local function overlaps(schedule, wanted)
  if schedule.made then return true end  -- made just now
  local id = schedule.name .. '@' .. whole(schedule.last)
  if is_up_to(id, reserved) then return true end
  for _, copy in ipairs(wanted.copies) do
    if copy.suffix ~= '' and is_up_to(id .. copy.suffix, reserved) then return true end
  end
  return false
end

local function add(id, copy, body, due)
  local job = parse(id, copy.front)
  job.bucket, job.number = bucket, now_us % 4294967296
  job.due, job.next = due, due
  job.state = due <= now_ms and ready or delayed
  job.created = job.state == delayed and from_ms or now_ms
  job.was, job.since = 0, 0
  enter(job)
  local rest = string.sub(copy.front, SHORT + 1) .. body
  append(plan.records, JOB .. id, header(job) .. rest)
  tell(job, rest, true)
  count(job.topic, 'created', 1)
  plan.topics[job.topic] = now_ms
end

-- Plan one occurrence, in each of its topics or in none; returns the outcome.
local function make(schedule, wanted, time)
  if wanted.skips and overlaps(schedule, wanted) then return 'skipped' end
  local id = schedule.name .. '@' .. whole(time.ms)
  for _, copy in ipairs(wanted.copies) do
    local old = read_job(id .. copy.suffix)
    if old then
      local is_own = old.state <= dead and index('ZSCORE', OCCURRENCES .. schedule.name, whole(time.ms) .. copy.suffix)
      if not is_own then return 'blocked' end
      schedule.last = time.ms
      return 'there'
    end
  end
  for _, copy in ipairs(wanted.copies) do
    if copy.most > 0 and pending_jobs(parse(id, copy.front).topic) >= copy.most then return 'full' end
  end
  schedule.made = schedule.made or {}
  for _, copy in ipairs(wanted.copies) do
    add(id .. copy.suffix, copy, wanted.body, time.due)
    append(schedule.made, whole(time.ms), whole(time.ms) .. copy.suffix)
  end
  schedule.last = time.ms
  return 'made'
end

-- Those of a few earlier occurrences that are no longer live.
local function done_before(schedule)
  local done = {}
  for _, each in ipairs(schedule.made and index('ZRANDMEMBER', OCCURRENCES .. schedule.name, LOOKED_AT) or {}) do
    if not is_up_to(schedule.name .. '@' .. each, dead) then append(done, each) end
  end
  return done
end

-- Plan the occurrences of a schedule; returns its answer, and the schedule as it is stored, or nil if there is none.
local function occur(wanted)
  local schedule = read_schedule(wanted.name)
  if not schedule or schedule.revision ~= wanted.revision or schedule.next ~= wanted.seen then return {-1}, schedule end
  local outcomes = {}
  schedule.next = wanted.next
  for place, time in ipairs(wanted.times) do
    local outcome = make(schedule, wanted, time)
    append(outcomes, outcome)
    if outcome == 'full' then
      schedule.next, schedule.waits = place == 1 and wanted.seen or time.ms, true
      break
    end
  end
  schedule.changed, schedule.done = schedule.next ~= wanted.seen, done_before(schedule)
  return {schedule.next, unpack(outcomes)}, schedule
end

-- Write what was planned for a schedule. An entry that its record does not confirm is removed.
local function keep(name, schedule)
  if not schedule or whole(schedule.bucket) ~= met then index('ZREM', BUCKET .. met, SCHEDULE .. name) end
  if not schedule then return end
  if not schedule.changed then return write_entry(schedule) end
  write_schedule(schedule)
  if schedule.made then index('ZADD', OCCURRENCES .. name, unpack(schedule.made)) end
  if #schedule.done > 0 then index('ZREM', OCCURRENCES .. name, unpack(schedule.done)) end
  if told then append(told, SCHEDULE .. name, string.rep('\0', 7) .. schedule_head(schedule)) end
end

-- One entry records both the jobs and the schedules, so that a journal never has one without the other.
local function keep_all(entries)
  for _, entry in ipairs(entries) do keep(entry.name, entry.schedule) end
  if told then tell_all(VERB_OCCUR, 0) end
end

local answers, entries, place = {}, {}, 1
while place < #plans do
  local wanted, schedule
  wanted, place = read_plan(place)
  answers[#answers + 1], schedule = occur(wanted)
  append(entries, {name = wanted.name, schedule = schedule})
end
commit()
keep_all(entries)
return answers
