#!lua
-- Keep jobs until they are due; one that is due now is ready at once.
-- arrows: none -> delayed, none -> ready, delayed -> delayed, delayed -> ready, ready -> delayed, ready -> ready,
--   dead -> delayed, dead -> ready
-- returns: a list, for each job {result, state, due}, for each group a list of those; result is created, existing or
--   replaced
-- fails: for a job or a whole group, in its place in the list: ALREADY_EXISTS state, RESERVED state, TOPIC_FULL topic
-- repeat: yes
-- include: time layout index plan plain create long_way layout record moves
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local bucket = tonumber(ARGV[2])  -- integer: whose turn it is
local buckets = tonumber(ARGV[3])  -- integer: how many there are
local jobs = {unpack(ARGV, 4)}  -- strings: id, how, record, … No id twice. How: keep, reject or replace, then the most
-- pending jobs that the topic may have, if there is a bound, then `+` when the next job is of the same group: all or none.
-- A job that lives keeps its life. Where no bucket holds it, it is put back: an add that is repeated after a
-- crash must not answer `existing` for a job that would never fire.
local function keep(job)
  if in_bucket(job) and not index('ZSCORE', BUCKET .. job.bucket, job.id) then schedule(job) end
  return {'existing', WORDS[job.state], job.due}
end

-- Give a job the fields that the caller could not know.
local function begin(job, old)
  local delay = job.next
  if job.due == 0 then job.due = (delay == 0 and now_ms or from_ms) + delay end
  job.due = math.max(job.due, now_ms)
  job.created, job.next, job.bucket = now_ms, job.due, plan.home
  -- Beyond the numbers of a life that left no trace: each of its pushes took a script, and that more than 1 us.
  job.number = old and old.number or now_us % 4294967296
  job.lease = old and old.lease or 0
  if job.lease > 0 then job.header = LONG end
  job.state = job.due <= now_ms and ready or delayed
end

local function start(id, record, old)
  local job = parse(id, record)
  if old and old.state <= dead then
    leave(old)
    count(old.topic, 'deleted', 1)
  end
  begin(job, old)
  enter(job)
  append(plan.records, JOB .. id, header(job) .. string.sub(record, SHORT + 1))
  local result = old and 'replaced' or 'created'
  count(job.topic, result, 1)
  return {result, WORDS[job.state], job.due}
end

-- Whether the topic has all the pending jobs that it may have; one that takes the place of another is none more.
local function full(topic, old, most)
  if old and old.topic == topic and (old.state == delayed or old.state == ready) then return false end
  local counts, planned = index('HMGET', COUNTS .. topic, 'delayed', 'ready'), plan.counts[topic] or {}
  return (tonumber(counts[1] or 0) or 0) + (tonumber(counts[2] or 0) or 0) + (planned.delayed or 0) + (planned.ready or 0) >= most
end

-- What stands in the way of a job, or nil, and the job that there is; true when that is kept.
local function look_for(id, condition, record)
  local old = read_job(id)
  local how, most = string.match(condition, '^(%a+)(%d*)')
  if old and how == 'keep' then return nil, old, true end
  if old and how == 'reject' then return redis.error_reply('ALREADY_EXISTS ' .. WORDS[old.state]) end
  if old and old.state == reserved then return redis.error_reply('RESERVED reserved') end
  most = tonumber(most)
  if most then
    local topic = parse(id, record).topic
    if full(topic, old, most) then return redis.error_reply('TOPIC_FULL ' .. topic) end
  end
  return nil, old
end

-- Add the jobs from one place in the arguments to another: all, or none and the error.
local function add(first, last)
  local olds, kept, results = {}, {}, {}
  for at = first, last, 3 do
    local refusal
    refusal, olds[at], kept[at] = look_for(jobs[at], jobs[at + 1], jobs[at + 2])
    if refusal then return refusal end
  end
  for at = first, last, 3 do
    results[#results + 1] = kept[at] and keep(olds[at]) or start(jobs[at], jobs[at + 2], olds[at])
  end
  return first == last and results[1] or results
end

local function add_all()
  local results, first = {}, 1
  for at = 1, #jobs, 3 do
    if string.sub(jobs[at + 1], -1) ~= '+' then
      results[#results + 1] = add(first, at)
      first = at + 3
    end
  end
  return results
end

return add_all, start
end  -- of the long way

-- The jobs of a call go into one bucket: what falls due together is then moved together. Calls take the buckets in turn,
-- those of many jobs at random: who adds one job and a hundred by turns would fill every second bucket.
plan.home = (bucket + (#jobs > 3 and now_us or 0)) % buckets
local PLAIN = {keep = true, reject = true, replace = true}

local function create_all(keys)
  local results, add_all, start = {}, nil, nil
  for n, key in ipairs(keys) do
    local id, record = jobs[3 * n - 2], jobs[3 * n]
    results[n] = create(key, id, record)
    if not results[n] then
      if not start then add_all, start = long_way() end
      results[n] = start(id, record)
    end
  end
  return results
end

-- The keys of the jobs when, as is usual, each may be added for itself and nobody has any of the ids; else nil.
local function new_keys()
  local keys = {}
  for at = 1, #jobs, 3 do
    if not PLAIN[jobs[at + 1]] then return nil end
    keys[#keys + 1] = JOB .. jobs[at]
  end
  return redis.call('EXISTS', unpack(keys)) == 0 and keys or nil
end

local keys = new_keys()
local results = keys and create_all(keys) or long_way()()
for topic in pairs(plan.counts) do
  if now_ms - (index('ZSCORE', TOPICS, topic) or 0) > 10000 then plan.topics[topic] = now_ms end
end
commit()
return results
