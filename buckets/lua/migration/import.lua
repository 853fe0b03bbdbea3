#!lua
-- Import jobs and tombstones from another Redis or a journal, as they were; an id that already exists here is left unchanged.
-- arrows: none -> delayed, none -> ready, none -> reserved, none -> dead
-- returns: a list: for each job 1, or 0 if its id already exists or its record is unreadable
-- fails: never
-- repeat: yes
-- include: clock indexes planned_writes record moves append by_key
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local by = ARGV[2]  -- string: the instance and any actor, recorded in events
local verb = tonumber(ARGV[3])  -- integer: the verb of an import, or of a restore
local bucket = tonumber(ARGV[4])  -- integer: the bucket whose turn it is
local buckets = tonumber(ARGV[5])  -- integer: the number of buckets
local jobs = {unpack(ARGV, 6)}  -- strings: id, record, id, record, … as export.lua returned them, without duplicate ids

-- A job continues where it was: ready or dead since the same time, reserved until the same time, with its deliveries and
-- lease.
local function import_job(job, raw)
  local since = job.next
  job.bucket = job.key and job.deliveries == 0 and by_key().bucket_of(job, buckets) or bucket % buckets
  job.number = now_us % 4294967296
  enter(job)
  count(job.topic, 'created', 1)
  if verb == VERB_RESTORE then count(job.topic, 'restored', 1) end
  plan.topics[job.topic] = now_ms
  if job.state == ready then
    job.next = math.min(since, now_ms)
  elseif job.state == dead then
    local entries = plan.bury[job.topic]
    entries[#entries - 1], job.next = whole(since), since
  end
  local rest = string.sub(raw, math.min(job.header, LONG) + 1)
  append(plan.records, JOB .. job.id, header(job) .. rest)
  job.was, job.since = 0, 0
  tell(job, rest, true)
end

local function import(id, raw)
  if read_job(id) then return 0 end
  local job = parse(id, raw)
  if not job then
    keep_aside(id, raw)
    return 0
  end
  if job.state <= dead then
    import_job(job, raw)
  elseif job.next > now_ms then
    append(plan.tombs, JOB .. id, raw, whole(job.next - now_ms))
  end
  return 1
end

local results = {}
for at = 1, #jobs, 2 do results[#results + 1] = import(jobs[at], jobs[at + 1]) end
commit(verb)
return results
