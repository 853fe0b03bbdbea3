#!lua
-- Keep jobs until they are due; a job that is due now is ready at once.
-- arrows: none -> delayed, none -> ready, delayed -> delayed, delayed -> ready, ready -> delayed, ready -> ready,
--   dead -> delayed, dead -> ready
-- returns: a list; for jobs next to each other {result, state, jobs, due, jobs, due, …}: how many had this result and are due
--   then; for each group of several jobs a list of those; result is created, existing or replaced, and in groups cancelled
-- fails: for a job or a whole group, in its place in the list: ALREADY_EXISTS state, RESERVED state, TOPIC_FULL topic
-- repeat: yes
-- include: clock indexes planned_writes retention
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local bucket = tonumber(ARGV[2])  -- integer: whose turn it is
local buckets = tonumber(ARGV[3])  -- integer: how many there are
local jobs = {unpack(ARGV, 4)}  -- strings: for each run of like jobs: jobs, how, most, more, front; for each job: id, when, body
-- No id twice. How: keep, reject, renew or replace. Most: the most pending jobs that the topic may have, 0 for no limit.
-- More: 1 if each job of the run is followed by another of its group, 0 if each ends its group; a group is added whole or not
-- at all. Front: the record up to the body, without times. When: ms since the epoch, or `+` and ms from now.
local runs, place = {}, 1  -- first, last: the places of the first and of the last job's id
while place < #jobs do
  local run = {how = jobs[place + 1], most = jobs[place + 2], more = jobs[place + 3] == '1', front = jobs[place + 4],
    first = place + 5, last = place + 2 + 3 * jobs[place]}
  runs[#runs + 1], place = run, run.last + 3
end

-- Greater than all numbers of a life that left no trace: each of its pushes took a script, and a script takes more than 1 us.
local NEW_NUMBER, PLUS = now_us % 4294967296, 43

-- When a job is due: at a time or, with a `+`, in so many ms from now.
local function due_at(when)
  local ms = tonumber(when)
  if string.byte(when) ~= PLUS then return math.max(ms, now_ms) end
  return ms == 0 and now_ms or from_ms + ms
end

-- The complete path: jobs of groups, ids that may be known, limits of pending jobs, a ttl of a ready job.
local function complete_path()
  -- include: record moves
  -- A live job keeps its life. If no bucket holds it, it is put back: an add that is repeated after a crash must not answer
  -- `existing` for a job that would never fire.
  local function keep(job, result)
    if in_bucket(job) and not index('ZSCORE', BUCKET .. job.bucket, job.id) then schedule(job) end
    return {result, WORDS[job.state], 1, job.due}
  end

  local function already(old) return redis.error_reply('ALREADY_EXISTS ' .. WORDS[old.state]) end

  -- Set the fields that the caller could not know.
  local function begin(job, when, old)
    job.due = due_at(when)
    job.next, job.bucket = job.due, plan.home
    job.number = old and old.number or NEW_NUMBER
    job.lease = old and old.lease or 0
    if job.lease > 0 then job.header = LONG end
    job.state = job.due <= now_ms and ready or delayed
    job.created = job.state == delayed and from_ms or now_ms  -- its delay is exactly the time from there to its due time
  end

  -- Create the job of a run whose id stands at a place; `old` is the job or tombstone that it replaces.
  local function start(run, at, old)
    local id = jobs[at]
    local job = parse(id, run.front)
    if old and old.state <= dead then
      leave(old)
      count(old.topic, 'deleted', 1)
    end
    begin(job, jobs[at + 1], old)
    enter(job)
    append(plan.records, JOB .. id, header(job) .. string.sub(run.front, SHORT + 1) .. jobs[at + 2])
    local result = old and 'replaced' or 'created'
    count(job.topic, result, 1)
    return {result, WORDS[job.state], 1, job.due}
  end

  -- Whether the topic has as many pending jobs as it may have; a job that replaces a pending one of the topic adds none.
  local function full(topic, old, most)
    if old and old.topic == topic and (old.state == delayed or old.state == ready) then return false end
    local counts, planned = index('HMGET', COUNTS .. topic, 'delayed', 'ready'), plan.counts[topic] or {}
    local pending = (tonumber(counts[1] or 0) or 0) + (tonumber(counts[2] or 0) or 0)
    return pending + (planned.delayed or 0) + (planned.ready or 0) >= most
  end

  -- Why a job may not be added, or nil; the existing job; whether that stays: as it is, or cancelled. A delayed copy of an old
  -- add must not revive what was deleted.
  local function look_up(run, at)
    local id, most = jobs[at], tonumber(run.most)
    local old = read_job(id)
    if old and run.how == 'keep' then return nil, old, old.state == deleted and 'cancelled' or 'existing' end
    if old and run.how == 'renew' and old.state < dead then return nil, old, 'existing' end
    if old and run.how == 'reject' then return already(old) end
    if old and old.state == reserved then return redis.error_reply('RESERVED reserved') end
    if most > 0 then
      local topic = parse(id, run.front).topic
      if full(topic, old, most) then return redis.error_reply('TOPIC_FULL ' .. topic) end
    end
    return nil, old
  end

  -- Add a group of {run, at}: all, or none and the error. A group of which nothing but tombstones of deleted jobs is left is
  -- refused.
  local function add(group)
    local olds, stays, results, cancelled = {}, {}, {}, 0
    for n, each in ipairs(group) do
      local refusal
      refusal, olds[n], stays[n] = look_up(each[1], each[2])
      if refusal then return refusal end
      if stays[n] == 'cancelled' then cancelled = cancelled + 1 end
    end
    if cancelled == #group then return already(olds[1]) end
    for n, each in ipairs(group) do
      results[n] = stays[n] and keep(olds[n], stays[n]) or start(each[1], each[2], olds[n])
    end
    return #group == 1 and results[1] or results
  end

  local function add_all()
    local results, group = {}, {}
    for _, run in ipairs(runs) do
      for at = run.first, run.last, 3 do
        group[#group + 1] = {run, at}
        if not run.more then
          results[#results + 1] = add(group)
          group = {}
        end
      end
    end
    return results
  end

  return add_all, start
end

-- The fast path, for new jobs that stand alone, which are nearly all: what like jobs share is made once, without a table of a
-- job. Any doubt goes the complete path; both have the same result.
-- What new jobs with one front that enter one state have in common; `closing` is all of the record from the ttr to the body.
local function new_kind(front, state, hourly)
  local flags, priority, _, length = string.byte(front, 3, 6)
  local topic = string.sub(front, SHORT + 1, SHORT + length)
  local number = (NEW_NUMBER + (state == ready and 1 or 0)) % 4294967296
  local created = struct.pack('>I6', state == delayed and from_ms or now_ms)  -- as `begin` has it
  flags = flags - delayed + state + (hourly and HOURLY or 0)
  local kind = {word = WORDS[state], hourly = hourly, counts = under(plan.counts, topic),
    opening = string.sub(front, 1, 2) .. string.char(flags, priority, plan.home, length) .. created,
    closing = string.sub(front, 25, 30) .. struct.pack('>I4', number) .. string.sub(front, SHORT + 1)}
  if state == ready then
    kind.entries, kind.mark = under(under(plan.push, topic), priority), whole(number) .. ':'
    -- Of the optional fields, the ttl affects which indexes hold a ready job.
    kind.complete = flags % 32 >= OPTIONAL and not retention_in(front, SHORT + length + 1)
  else
    kind.members, kind.bins = under(plan.bucket, plan.home), under(plan.due, topic)
  end
  return kind
end

-- Enter into the indexes the jobs between two places in the arguments, all due at one time.
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

-- Create the jobs of a run, whose ids are unknown, from a place in the arguments on. Returns where it stopped: behind the run,
-- or at a job for the complete path. `results` gets, for all that enter one state, {result, state, jobs, due, …}.
local function create(run, at, results)
  local records, front, last, made = plan.records, run.front, run.last, {}
  local kind, result
  while at <= last do
    local when, first = jobs[at + 1], at
    local due = due_at(when)
    local name = due <= now_ms and 'ready' or due - now_ms > FAR and 'far' or 'near'
    if not made[name] then made[name] = new_kind(front, name == 'ready' and ready or delayed, name == 'far') end
    if made[name].complete then return at end
    if not kind or made[name].word ~= kind.word then
      result = {'created', made[name].word}
      results[#results + 1] = result
    end
    kind = made[name]
    local head = kind.opening .. struct.pack('>I6I6', due, due) .. kind.closing
    repeat
      append(records, JOB .. jobs[at], head .. jobs[at + 2])
      at = at + 3
    until at > last or jobs[at + 1] ~= when
    append(result, enter_new(kind, due, first, at - 3), due)
  end
  return at
end

-- The jobs of a call go into one bucket, so that what falls due together is moved together. Calls take the buckets in turn,
-- those of many jobs at random: a caller that alternates between one job and a hundred would fill every second bucket.
plan.home = (bucket + (#jobs > 8 and now_us or 0)) % buckets

-- The jobs of one run, all new; those that are not simple go the complete path.
local _, start
local function create_run(run, results)
  local at = run.first
  while at <= run.last do
    at = create(run, at, results)
    if at <= run.last then
      if not start then _, start = complete_path() end
      results[#results + 1] = start(run, at)
      at = at + 3
    end
  end
end

local function create_all()
  local results = {}
  for _, run in ipairs(runs) do create_run(run, results) end
  return results
end

-- Whether, as usual, each job may be added on its own and all ids are unknown.
local function all_new()
  local keys = {}
  for _, run in ipairs(runs) do
    if run.more or run.most ~= '0' then return false end
    for at = run.first, run.last, 3 do keys[#keys + 1] = JOB .. jobs[at] end
  end
  return redis.call('EXISTS', unpack(keys)) == 0
end

local results = all_new() and create_all() or complete_path()()
for topic in pairs(plan.counts) do
  if now_ms - (index('ZSCORE', TOPICS, topic) or 0) > 10000 then plan.topics[topic] = now_ms end
end
commit()
return results
