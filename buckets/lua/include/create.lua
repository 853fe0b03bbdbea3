-- The lane of the plain jobs in add, those of nearly every call: what like jobs share is made once, without a table of a job.
-- What is not quite plain goes the long way, which knows everything; both come to the same.
-- The runs of like jobs in the arguments: how, front, and the places of the first and the last id.
local PLAIN = {keep = true, reject = true, replace = true}
local runs, place = {}, 1
while place < #jobs do
  local run = {how = jobs[place + 1], front = jobs[place + 2], first = place + 3, last = place + 3 * jobs[place]}
  runs[#runs + 1], place = run, run.last + 3
end

-- Beyond the numbers of a life that left no trace: each of its pushes took a script, and that more than 1 us.
local NEW_NUMBER, PLUS = now_us % 4294967296, 43

-- When a job is due: at a time, or, with a `+`, so long from now.
local function due_at(when)
  local ms = tonumber(when)
  if string.byte(when) ~= PLUS then return math.max(ms, now_ms) end
  return ms == 0 and now_ms or from_ms + ms
end

-- What new jobs with one front that go into one state have in common; `closing` is all of the record from the ttr to the
-- body.
local function new_kind(front, state, hourly)
  local flags, priority, _, length = string.byte(front, 3, 6)
  local topic = string.sub(front, SHORT + 1, SHORT + length)
  local number = (NEW_NUMBER + (state == ready and 1 or 0)) % 4294967296
  flags = flags - delayed + state + (hourly and HOURLY or 0)
  local kind = {word = WORDS[state], hourly = hourly, counts = under(plan.counts, topic),
    opening = string.sub(front, 1, 2) .. string.char(flags, priority, plan.home, length) .. struct.pack('>I6', now_ms),
    closing = string.sub(front, 25, 30) .. struct.pack('>I4', number) .. string.sub(front, SHORT + 1)}
  if state == ready then
    kind.entries, kind.mark = under(under(plan.push, topic), priority), whole(number) .. ':'
    -- Of the optional fields, the ttl has a say in where a ready job stands.
    kind.odd = flags % 32 >= OPTIONAL and not retention_in(front, SHORT + length + 1)
  else
    kind.members, kind.bins = under(plan.bucket, plan.home), under(plan.due, topic)
  end
  return kind
end

-- Put the jobs between two places in the arguments, due at one time, into the indexes.
local function enter_new(kind, due, first, last)
  local n = (last - first) / 3 + 1
  tally(kind.counts, 'created', n)
  tally(kind.counts, kind.word, n)
  if kind.entries then
    local entries, mark = kind.entries, kind.mark
    for at = first, last, 3 do entries[#entries + 1] = mark .. jobs[at] end
  else
    local members, score = kind.members, whole(due)
    for at = first, last, 3 do append(members, score, jobs[at]) end
    plan.first[plan.home] = math.min(plan.first[plan.home] or due, due)
    tally(kind.bins, bin_at(due, kind.hourly), n)
  end
  return n
end

-- Make the jobs of a run, whose ids nobody has, from one place in the arguments on; returns where it stopped: behind the
-- run, or at one that takes the long way. `results` gets for all that go into one state {result, state, jobs, due, …}.
local function create(run, at, results)
  local records, front, last, made = plan.records, run.front, run.last, {}
  local kind, told
  while at <= last do
    local when, first = jobs[at + 1], at
    local due = due_at(when)
    local name = due <= now_ms and 'ready' or due - now_ms > 86400000 and 'far' or 'near'
    if not made[name] then made[name] = new_kind(front, name == 'ready' and ready or delayed, name == 'far') end
    if made[name].odd then return at end
    if not kind or made[name].word ~= kind.word then
      told = {'created', made[name].word}
      results[#results + 1] = told
    end
    kind = made[name]
    local head = kind.opening .. struct.pack('>I6I6', due, due) .. kind.closing
    repeat
      append(records, JOB .. jobs[at], head .. jobs[at + 2])
      at = at + 3
    until at > last or jobs[at + 1] ~= when
    append(told, enter_new(kind, due, first, at - 3), due)
  end
  return at
end

-- A job for the long way.
local function new_job(run, at)
  return {id = jobs[at], how = run.how, front = run.front, when = jobs[at + 1], body = jobs[at + 2]}
end
