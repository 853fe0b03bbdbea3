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
-- The jobs of a call go into one bucket: what falls due together is then moved together. Calls take the buckets in turn,
-- those of many jobs at random: who adds one job and a hundred by turns would fill every second bucket.
local home = (bucket + (#jobs > 3 and now_us or 0)) % buckets
local PLAIN = {keep = true, reject = true, replace = true}

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
  job.created, job.next, job.bucket = now_ms, job.due, home
  -- Beyond the numbers of a life that left no trace: each of its pushes took a script, and that more than 1 us.
  job.number = old and old.number or now_us % 4294967296
  job.lease = old and old.lease or 0
  if job.lease > 0 then job.header = LONG end
  job.state = job.due <= now_ms and ready or delayed
end

local function replace(id, record, old)
  local job = parse(id, record)
  if old.state <= dead then
    leave(old)
    count(old.topic, 'deleted', 1)
  end
  begin(job, old)
  enter(job)
  append(plan.records, JOB .. id, header(job) .. string.sub(record, SHORT + 1))
  count(job.topic, 'replaced', 1)
  return {'replaced', WORDS[job.state], job.due}
end

-- Most jobs of a call differ in nothing but id and body. What follows from the front of a record, all before its body, is
-- worked out once: a kind is a job without id, and what its jobs have in common.
local kinds = {}
local function kind_of(record)
  local size = SHORT + string.byte(record, 6)
  if string.byte(record, 3) >= OPTIONAL then size = size + 2 + struct.unpack('>H', record, size + 1) end
  local front = string.sub(record, 1, size)
  local kind = kinds[front]
  if kind then return kind end
  kind = parse('', record)
  begin(kind)
  arrive(kind)
  kind.size, kind.jobs = size, 0
  kind.front = header(kind) .. string.sub(front, SHORT + 1)
  kind.result = {'created', WORDS[kind.state], kind.due}
  if kind.state == ready then
    kind.entries, kind.mark = under(under(plan.push, kind.topic), kind.priority), whole(kind.number) .. ':'
  end
  if in_bucket(kind) then
    kind.members, kind.at = under(plan.bucket, home), whole(score(kind))
    plan.first[home] = math.min(plan.first[home] or math.huge, score(kind))
  end
  kinds[front] = kind
  return kind
end

-- A job whose id nobody has.
local function create(id, record)
  local kind = kind_of(record)
  kind.jobs = kind.jobs + 1
  if kind.entries then kind.entries[#kind.entries + 1] = kind.mark .. id end
  if kind.members then append(kind.members, kind.at, id) end
  append(plan.records, JOB .. id, kind.front .. string.sub(record, kind.size + 1))
  return kind.result
end

-- Count the jobs that were created since the last time.
local function count_created()
  for _, kind in pairs(kinds) do
    count(kind.topic, 'created', kind.jobs)
    count(kind.topic, WORDS[kind.state], kind.jobs)
    if kind.state == delayed then count_due(kind, kind.jobs) end
    kind.jobs = 0
  end
end

-- Whether the topic has all the pending jobs that it may have; one that takes the place of another is none more.
local function full(topic, old, most)
  if old and old.topic == topic and (old.state == delayed or old.state == ready) then return false end
  count_created()
  local counts, planned = index('HMGET', COUNTS .. topic, 'delayed', 'ready'), plan.counts[topic] or {}
  return (tonumber(counts[1] or 0) or 0) + (tonumber(counts[2] or 0) or 0) + (planned.delayed or 0) + (planned.ready or 0) >= most
end

-- What stands in the way of a job, or nil, and the job that there is; true when that is kept.
local function look_for(id, how, record)
  local old, most = read_job(id), nil
  if not PLAIN[how] then how, most = string.match(how, '^(%a+)(%d*)') end
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
    local id, record, old = jobs[at], jobs[at + 2], olds[at]
    results[#results + 1] = kept[at] and keep(old) or old and replace(id, record, old) or create(id, record)
  end
  return first == last and results[1] or results
end

-- Whether nobody has any of the ids, as is usual.
local function all_new()
  local keys = {}
  for at = 1, #jobs, 3 do keys[#keys + 1] = JOB .. jobs[at] end
  return redis.call('EXISTS', unpack(keys)) == 0
end

local results, first, new = {}, 1, all_new()
for at = 1, #jobs, 3 do
  local how = jobs[at + 1]
  if new and first == at and PLAIN[how] then
    results[#results + 1] = create(jobs[at], jobs[at + 2])
    first = at + 3
  elseif string.sub(how, -1) ~= '+' then
    results[#results + 1] = add(first, at)
    first = at + 3
  end
end
count_created()
for topic in pairs(plan.counts) do
  if now_ms - (index('ZSCORE', TOPICS, topic) or 0) > 10000 then plan.topics[topic] = now_ms end
end
commit()
return results
