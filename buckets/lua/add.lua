#!lua
-- Keep jobs until they are due; one that is due now is ready at once.
-- arrows: none -> delayed, none -> ready, delayed -> delayed, delayed -> ready, ready -> delayed, ready -> ready,
--   dead -> delayed, dead -> ready
-- returns: a list, for each job {result, state, due}, for each group a list of those; result is created, existing or
--   replaced
-- fails: for a job or a whole group, in its place in the list: ALREADY_EXISTS state, RESERVED state, TOPIC_FULL topic
-- repeat: yes
-- include: time record moves
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local bucket = tonumber(ARGV[2])  -- integer: where the first job goes; the others follow round robin
local buckets = tonumber(ARGV[3])  -- integer: how many there are
local jobs = {unpack(ARGV, 4)}  -- strings: id, how, record, … No id twice. How: keep, reject or replace, then the most
-- pending jobs that the topic may have, if there is a bound, then `+` when the next job is of the same group: all or none.
local PLAIN = {keep = true, reject = true, replace = true}

-- A job that lives keeps its life. Where no bucket holds it, it is put back: an add that is repeated after a
-- crash must not answer `existing` for a job that would never fire.
local function keep(job)
  if in_bucket(job) and not index('ZSCORE', BUCKET .. job.bucket, job.id) then schedule(job) end
  return {'existing', WORDS[job.state], job.due}
end

local function start(job, record, old)
  if old and old.state <= dead then
    leave(old)
    count(old.topic, 'deleted', 1)
  end
  job.bucket = bucket % buckets
  bucket = bucket + 1
  local delay = job.next
  if job.due == 0 then job.due = (delay == 0 and now_ms or from_ms) + delay end
  job.due = math.max(job.due, now_ms)
  job.created, job.next = now_ms, job.due
  -- Beyond the numbers of a life that left no trace: each of its pushes took a script, and that more than 1 us.
  job.number = old and old.number or now_us % 4294967296
  job.lease = old and old.lease or 0
  if job.lease > 0 then job.header = LONG end
  job.state = job.due <= now_ms and ready or delayed
  enter(job)
  append(plan.records, job.id, header(job) .. string.sub(record, SHORT + 1))
  count(job.topic, old and 'replaced' or 'created', 1)
  return {old and 'replaced' or 'created', WORDS[job.state], job.due}
end

-- Whether the topic has all the pending jobs that it may have; one that takes the place of another is none more.
local function full(job, old, most)
  if old and old.topic == job.topic and (old.state == delayed or old.state == ready) then return false end
  local counts, planned = index('HMGET', COUNTS .. job.topic, 'delayed', 'ready'), plan.counts[job.topic] or {}
  return (tonumber(counts[1] or 0) or 0) + (tonumber(counts[2] or 0) or 0) + (planned.delayed or 0) + (planned.ready or 0) >= most
end

-- What stands in the way of a job, or nil; the job as it would begin (nil: there is one that is kept).
local function look_for(id, how, record)
  local old, most = read_job(id), nil
  if not PLAIN[how] then how, most = string.match(how, '^(%a+)(%d*)') end
  if old and how == 'keep' then return nil, old end
  if old and how == 'reject' then return redis.error_reply('ALREADY_EXISTS ' .. WORDS[old.state]) end
  if old and old.state == reserved then return redis.error_reply('RESERVED reserved') end
  local job = parse(id, record)
  if tonumber(most) and full(job, old, tonumber(most)) then return redis.error_reply('TOPIC_FULL ' .. job.topic) end
  return nil, old, job
end

-- Add the jobs from one place in the arguments to another: all, or none and the error.
local function add(first, last)
  local olds, news, results = {}, {}, {}
  for at = first, last, 3 do
    local refusal, old, job = look_for(jobs[at], jobs[at + 1], jobs[at + 2])
    if refusal then return refusal end
    olds[at], news[at] = old, job
  end
  for at = first, last, 3 do
    results[#results + 1] = news[at] and start(news[at], jobs[at + 2], olds[at]) or keep(olds[at])
  end
  return first == last and results[1] or results
end

local results, first = {}, 1
for at = 1, #jobs, 3 do
  if string.sub(jobs[at + 1], -1) ~= '+' then
    results[#results + 1] = add(first, at)
    first = at + 3
  end
end
for topic in pairs(plan.counts) do
  if now_ms - (index('ZSCORE', TOPICS, topic) or 0) > 10000 then plan.topics[topic] = now_ms end
end
commit()
return results
