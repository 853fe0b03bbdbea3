#!lua
-- Import jobs and tombstones of another Redis or of a journal, as they were; an id that exists here already keeps what it has.
-- arrows: none -> delayed, none -> ready, none -> reserved, none -> dead
-- returns: a list, for each job 1, or 0 if its id exists already
-- fails: never
-- repeat: yes
-- include: clock indexes planned_writes record moves append
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local by = ARGV[2]  -- string: who makes the moves, for their events
local verb = tonumber(ARGV[3])  -- integer: import, or restore
local bucket = tonumber(ARGV[4])  -- integer: whose turn it is
local buckets = tonumber(ARGV[5])  -- integer: how many there are
local jobs = {unpack(ARGV, 6)}  -- strings: id, record, id, record, … as export.lua returned them. No id twice.

-- A job goes on where it was: ready or dead since then, reserved until then, with its deliveries and its lease.
local function import_job(job, raw)
  local since = job.next
  job.bucket, job.number = bucket % buckets, now_us % 4294967296
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
