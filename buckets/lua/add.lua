#!lua
-- Keep jobs until they are due; one that is due now is ready at once.
-- arrows: none -> delayed, none -> ready, delayed -> delayed, delayed -> ready, ready -> delayed, ready -> ready,
--   dead -> delayed, dead -> ready
-- returns: a list, for each job {result, state, due}; result is created, existing or replaced
-- fails: for a job, in its place in the list: ALREADY_EXISTS state, RESERVED state
-- repeat: yes
-- include: time record moves
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local bucket = tonumber(ARGV[2])  -- integer: where the first job goes; the others follow round robin
local buckets = tonumber(ARGV[3])  -- integer: how many there are
local jobs = {unpack(ARGV, 4)}  -- strings: id, keep|reject|replace, record, … No id twice.

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
  local delay = job.next
  if job.due == 0 then job.due = (delay == 0 and now_ms or from_ms) + delay end
  job.due = math.max(job.due, now_ms)
  job.created, job.next = now_ms, job.due
  job.number = old and old.number or now_us % 4294967296
  job.lease = old and old.lease or 0
  if job.lease > 0 then job.header = LONG end
  job.state = job.due <= now_ms and ready or delayed
  enter(job)
  append(plan.records, job.id, header(job) .. string.sub(record, SHORT + 1))
  count(job.topic, old and 'replaced' or 'created', 1)
  return {old and 'replaced' or 'created', WORDS[job.state], job.due}
end

local function add(id, if_exists, record)
  local old = read_job(id)
  if old and if_exists == 'keep' then return keep(old) end
  if old and if_exists == 'reject' then return redis.error_reply('ALREADY_EXISTS ' .. WORDS[old.state]) end
  if old and old.state == reserved then return redis.error_reply('RESERVED reserved') end
  local job = parse(id, record)
  job.bucket = bucket % buckets
  bucket = bucket + 1
  return start(job, record, old)
end

local results = {}
for at = 1, #jobs, 3 do results[#results + 1] = add(jobs[at], jobs[at + 1], jobs[at + 2]) end
for topic in pairs(plan.counts) do
  if now_ms - (index('ZSCORE', TOPICS, topic) or 0) > 10000 then plan.topics[topic] = now_ms end
end
commit()
return results
