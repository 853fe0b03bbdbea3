-- include: clock indexes append place record slices key_order
-- What a record requires of the indexes, and what the indexes lack. Only reads.
-- The job of an id, as far as its record can be read; otherwise nil, and whether something else is stored under the id.
local function inspect(id)
  local job = read_front(id)
  if not job then return nil, redis.call('EXISTS', JOB .. id) == 1 end
  return job
end

local function score_in(key, id)
  local reply = redis.pcall('ZSCORE', key, id)
  return type(reply) == 'string' and tonumber(reply) or nil
end

-- A tombstone expires and has no body; a live job does not expire and has one. If the key's expiry and the state disagree,
-- the body shows which of them is wrong. If the job keeps its body, the body shows nothing; then an index entry is the sign
-- of a live job. A ready job may be in no sorted set, so its state is believed.
local function end_fault(job)
  local ends = redis.call('PTTL', JOB .. job.id) >= 0
  if ends == (job.state >= finished) then return nil end
  if job.keeps_body then
    local indexed = score_in(BUCKET .. job.bucket, job.id) or score_in(DEAD .. job.topic, job.id)
      or find_in_slices(job.bucket, job.next, job.id)
    if ends then return (indexed or job.state == ready) and 'ending' or 'contradictory' end
    return indexed and 'contradictory' or 'endless'
  end
  local has_body = redis.call('STRLEN', JOB .. job.id) >= job.body_at or job.optional
  if ends == not has_body then return 'contradictory' end
  return ends and 'ending' or 'endless'
end

local function place_fault(job, buckets)
  if job.state >= finished then return nil end
  if job.bucket >= buckets then return 'no_timer' end
  local at, wanted
  if in_bucket(job) then
    at, wanted = score_in(BUCKET .. job.bucket, job.id), score(job)
    if not at and job.state == delayed and find_in_slices(job.bucket, wanted, job.id) then return nil end
  elseif job.state == dead then
    at, wanted = score_in(DEAD .. job.topic, job.id), job.next
  end
  if at == wanted then return nil end
  return at and 'misdated' or 'unindexed'
end

-- Whether a ready job waits for its key.
local function is_blocked(job)
  local waits = job.key and job.state == ready and score_in(HOLDERS .. job.topic, holder(job)) ~= 0
  return waits and score_in(BLOCKED .. job.topic, blocked_entry(job)) == 0
end

local function key_fault(job)
  if not job.key or not uses_key(job) or score_in(HOLDERS .. job.topic, holder(job)) == 0 then return nil end
  local entry = blocked_entry(job)
  if job.state ~= ready or score_in(BLOCKED .. job.topic, entry) ~= 0 then return 'unindexed' end
  local first, last = range_of(job.key)
  if redis.pcall('ZRANGEBYLEX', BLOCKED .. job.topic, first, last, 'LIMIT', '0', '1')[1] ~= entry then return nil end
  local busy = redis.pcall('ZLEXCOUNT', HOLDERS .. job.topic, range_of(job.key))
  local low, high = pace_range(job.key)
  if job.gap > 0 and #redis.pcall('ZRANGEBYLEX', HOLDERS .. job.topic, low, high, 'LIMIT', '0', '1') > 0 then return nil end
  busy = type(busy) == 'number' and busy or 0
  return (job.most == 0 or busy < job.most) and 'stuck' or nil
end

-- The name of the histogram bin for the due time of a job; empty unless the job is delayed.
local function bin_of(job)
  if job.state ~= delayed then return '' end
  return job.hourly and 'h' .. whole(math.floor(job.next / 3600000)) or 'm' .. whole(math.floor(job.next / 60000))
end

-- Check jobs. `mend(job, id, fault)` is called for each fault, and returns true if the job no longer exists. Returns now in
-- ms; the numbers of jobs as {state bin topic, n, …}; the entries that ready jobs require as {priority:topic, number:id,
-- since, …}; and faults as {id, fault, …}. Buckets from number `buckets` on have no timer.
local function survey(ids, buckets, mend)
  local numbers, wanted, found = {}, {}, {}
  for _, id in ipairs(ids) do
    local job, strange = inspect(id)
    local end_is = job and end_fault(job) or strange and 'unreadable'
    if end_is then append(found, id, end_is) end
    local gone = end_is and mend(job, id, end_is)
    if job and not gone and end_is ~= 'contradictory' then
      local blocked = is_blocked(job)
      local place = place_fault(job, buckets) or key_fault(job)
      if place then
        append(found, id, place)
        mend(job, id, place)
      end
      local name = (blocked and 'blocked' or WORDS[job.state]) .. ' ' .. bin_of(job) .. ' ' .. job.topic
      numbers[name] = (numbers[name] or 0) + 1
      if job.state == ready and not blocked and not (job.ttl and job.due + job.ttl <= now_ms) then
        append(wanted, job.priority .. ':' .. job.topic, string.format('%d:%s', job.number, id), whole(job.next))
      end
    end
  end
  local counted = {}
  for name, n in pairs(numbers) do append(counted, name, n) end
  return {now_ms, counted, wanted, found}
end
