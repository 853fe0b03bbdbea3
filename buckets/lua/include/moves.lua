-- include: clock indexes place planned_writes record events append by_key
-- The moves of a job, as planned writes.
local function schedule(job)
  local at = score(job)
  append(under(plan.bucket, job.bucket), whole(at), job.id)
  plan.first[job.bucket] = math.min(plan.first[job.bucket] or at, at)
end

-- Take a job out of its bucket: out of the set, or if it is delayed perhaps out of a slice.
local function unschedule(job)
  under(plan.unbucket, job.bucket)[job.id] = true
  if job.state == delayed then under(plan.unslice, job.bucket)[job.id] = job.next end
end

-- Take a live job out of the indexes of its state. Its entry in a ready list just becomes stale.
local function leave(job)
  if job.holds then plan.places[job.topic] = true end
  count(job.topic, job.key and by_key().leave_key(job) or WORDS[job.state], -1)
  if job.state == delayed then count_due(job.topic, job.next, job.hourly, -1) end
  if in_bucket(job) then unschedule(job) end
  if job.state == dead then table.insert(under(plan.unbury, job.topic), job.id) end
end

-- Make the changes to the header that follow from a new `job.state`.
local function arrive(job)
  if job.state ~= reserved then job.holds = nil end
  if job.state == delayed then
    job.hourly = job.next - now_ms > FAR
  elseif job.state == ready then
    job.number = (job.number + 1) % 4294967296
    job.next = now_ms
  elseif job.state == dead then
    job.next = now_ms
  end
end

-- Put the job into the indexes of `job.state`.
local function enter(job)
  arrive(job)
  local waits = job.key and by_key().enter_key(job)
  count(job.topic, waits and 'blocked' or WORDS[job.state], 1)
  if job.state == delayed then
    count_due(job.topic, job.next, job.hourly, 1)
  elseif job.state == ready and not waits then
    local entries = under(under(plan.push, job.topic), job.priority)
    entries[#entries + 1] = string.format('%d:%s', job.number, job.id)
  elseif job.state == dead then
    append(under(plan.bury, job.topic), whole(now_ms), job.id)
  end
  if in_bucket(job) then
    schedule(job)
    under(plan.unbucket, job.bucket)[job.id] = nil
  end
end

-- Record the move of a job for a journal. `rest`: everything after the header, if the move wrote the optional fields; `body`:
-- not nil if the move also wrote the body.
local function tell(job, rest, body)
  if not told then return end
  local length = job.header
  job.header = math.min(length, LONG)
  local value = string.char(job.was) .. struct.pack('>I6', job.since) .. header(job) .. job.topic
  if rest then
    local at = length - job.header + #job.topic + 1
    local body_at = job.optional and at + 2 + struct.unpack('>H', rest, at) or at
    local fits = body and #rest - body_at < EVENT_BODY
    value = value .. string.sub(rest, at, fits and -1 or body_at - 1)
  end
  job.header = length
  append(told, job.id, value)
end

-- Move a live job to another live state, with the time `at` for delayed and reserved. Writes its header, or the whole record
-- if `rest`, everything after the header, is passed. `same`: true if the optional fields in `rest` are unchanged.
local function move(job, to, at, rest, same)
  leave(job)
  job.state = to
  job.next = at or job.next
  enter(job)
  if rest then
    append(plan.records, JOB .. job.id, header(job) .. rest)
  else
    append(plan.headers, JOB .. job.id, header(job))
  end
  tell(job, not same and rest)
end

-- End a job: leave a tombstone for its retention, or nothing if that is 0. A tombstone has neither body nor optional fields,
-- unless the add asked to keep the body: then the record stays, and only its header is written, or the whole record if `rest`
-- is passed (see `move`).
local function entomb(job, to, rest)
  leave(job)
  count(job.topic, WORDS[to], 1)
  job.state, job.next, job.hourly, job.holds = to, now_ms + job.retention, nil, nil
  local key, lasts = JOB .. job.id, whole(job.retention + longer)
  if job.retention == 0 or not job.keeps_body then
    job.header, job.optional, job.keeps_body = job.lease > 0 and LONG or SHORT, nil, nil
  end
  if job.retention == 0 then
    plan.gone[#plan.gone + 1] = key
  elseif not job.keeps_body then
    append(plan.tombs, key, header(job) .. job.topic, lasts)
  elseif rest then
    append(plan.tombs, key, header(job) .. rest, lasts)
  else
    append(plan.headers, key, header(job))
    append(under(plan, 'ends'), key, lasts)
  end
  tell(job)
end

-- Make a job a dead letter, and report this to the script's caller, for the log: id, topic, cause, attempts, worker.
local function die(job, cause, word, rest)
  job.cause = cause
  local died = under(plan, 'died')
  died[#died + 1] = {job.id, job.topic, word, job.attempts, job.optional and job.optional[TAG_WORKER] or ''}
  count(job.topic, 'died_' .. word, 1)
  move(job, dead, nil, rest)
end
