#!lua
-- Keep jobs until they are due; one that is due now is ready at once.
-- arrows: none -> delayed, none -> ready, delayed -> delayed, delayed -> ready, ready -> delayed, ready -> ready,
--   dead -> delayed, dead -> ready
-- returns: a list; for jobs that stand together {result, state, jobs, due, jobs, due, …}: how many came to it and are due
--   then; for each group of several jobs a list of those; result is created, existing or replaced
-- fails: for a job or a whole group, in its place in the list: ALREADY_EXISTS state, RESERVED state, TOPIC_FULL topic
-- repeat: yes
-- include: time layout index plan create long_way layout record moves
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local bucket = tonumber(ARGV[2])  -- integer: whose turn it is
local buckets = tonumber(ARGV[3])  -- integer: how many there are
local jobs = {unpack(ARGV, 4)}  -- strings: for each run of like jobs: how many, how, front, then for each: id, when, body
-- No id twice. How: keep, reject or replace, then the most pending jobs that the topic may have, if there is a bound, then
-- `+` when the next job is of the same group: all or none. Front: the record up to the body, without times. When: ms since
-- the epoch, or `+` and ms from now.

-- A job that lives keeps its life. Where no bucket holds it, it is put back: an add that is repeated after a
-- crash must not answer `existing` for a job that would never fire.
local function keep(job)
  if in_bucket(job) and not index('ZSCORE', BUCKET .. job.bucket, job.id) then schedule(job) end
  return {'existing', WORDS[job.state], 1, job.due}
end

-- Give a job the fields that the caller could not know.
local function begin(job, when, old)
  job.due = due_at(when)
  job.created, job.next, job.bucket = now_ms, job.due, plan.home
  job.number = old and old.number or NEW_NUMBER
  job.lease = old and old.lease or 0
  if job.lease > 0 then job.header = LONG end
  job.state = job.due <= now_ms and ready or delayed
end

local function start(new, old)
  local job = parse(new.id, new.front)
  if old and old.state <= dead then
    leave(old)
    count(old.topic, 'deleted', 1)
  end
  begin(job, new.when, old)
  enter(job)
  append(plan.records, JOB .. new.id, header(job) .. string.sub(new.front, SHORT + 1) .. new.body)
  local result = old and 'replaced' or 'created'
  count(job.topic, result, 1)
  return {result, WORDS[job.state], 1, job.due}
end

-- Whether the topic has all the pending jobs that it may have; one that takes the place of another is none more.
local function full(topic, old, most)
  if old and old.topic == topic and (old.state == delayed or old.state == ready) then return false end
  local counts, planned = index('HMGET', COUNTS .. topic, 'delayed', 'ready'), plan.counts[topic] or {}
  return (tonumber(counts[1] or 0) or 0) + (tonumber(counts[2] or 0) or 0) + (planned.delayed or 0) + (planned.ready or 0) >= most
end

-- What stands in the way of a job, or nil, and the job that there is; true when that is kept.
local function look_for(new)
  local old = read_job(new.id)
  local how, most = string.match(new.how, '^(%a+)(%d*)')
  if old and how == 'keep' then return nil, old, true end
  if old and how == 'reject' then return redis.error_reply('ALREADY_EXISTS ' .. WORDS[old.state]) end
  if old and old.state == reserved then return redis.error_reply('RESERVED reserved') end
  most = tonumber(most)
  if most then
    local topic = parse(new.id, new.front).topic
    if full(topic, old, most) then return redis.error_reply('TOPIC_FULL ' .. topic) end
  end
  return nil, old
end

-- Add a group: all, or none and the error.
local function add(group)
  local olds, kept, results = {}, {}, {}
  for at, new in ipairs(group) do
    local refusal
    refusal, olds[at], kept[at] = look_for(new)
    if refusal then return refusal end
  end
  for at, new in ipairs(group) do results[at] = kept[at] and keep(olds[at]) or start(new, olds[at]) end
  return #group == 1 and results[1] or results
end

local function add_all()
  local results, group = {}, {}
  for _, run in ipairs(runs) do
    for at = run.first, run.last, 3 do
      group[#group + 1] = new_job(run, at)
      if string.sub(run.how, -1) ~= '+' then
        results[#results + 1] = add(group)
        group = {}
      end
    end
  end
  return results
end

return add_all, start
end  -- of the long way

-- The jobs of a call go into one bucket: what falls due together is then moved together. Calls take the buckets in turn,
-- those of many jobs at random: who adds one job and a hundred by turns would fill every second bucket.
plan.home = (bucket + (#jobs > 6 and now_us or 0)) % buckets

-- Jobs of one run that nobody has; what is not plain among them goes the long way.
local _, start
local function create_run(run, results)
  local at = run.first
  while at <= run.last do
    at = create(run, at, results)
    if at <= run.last then
      if not start then _, start = long_way() end
      results[#results + 1] = start(new_job(run, at))
      at = at + 3
    end
  end
end

local function create_all()
  local results = {}
  for _, run in ipairs(runs) do create_run(run, results) end
  return results
end

-- Whether, as is usual, each may be added for itself and nobody has any of the ids.
local function all_new()
  local keys = {}
  for _, run in ipairs(runs) do
    if not PLAIN[run.how] then return false end
    for at = run.first, run.last, 3 do keys[#keys + 1] = JOB .. jobs[at] end
  end
  return redis.call('EXISTS', unpack(keys)) == 0
end

local results = all_new() and create_all() or long_way()()
for topic in pairs(plan.counts) do
  if now_ms - (index('ZSCORE', TOPICS, topic) or 0) > 10000 then plan.topics[topic] = now_ms end
end
commit()
return results
