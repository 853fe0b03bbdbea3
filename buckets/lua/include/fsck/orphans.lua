-- include: clock faults place schedules slices key_order
-- The names of schedules that do not exist, but whose sets of occurrences do. Only reads.
local function forgotten(names)
  local found = {}
  for _, name in ipairs(names) do
    if redis.pcall('HEXISTS', SCHEDULES, name) == 0 and redis.call('EXISTS', OCCURRENCES .. name) == 1 then
      found[#found + 1] = name
    end
  end
  return found
end

local LATE_PACE = 60000  -- ms after which the timer has missed the entry of a key's pace

-- Whether a bound names a slice. Only reads.
local function has_slice(slices, bound)
  local key = slices .. ':' .. bound
  return is_bound(bound) and redis.call('EXISTS', key) == 1
end

-- The entries of an index that no record confirms, and the key of the index. Only reads. `family`: b for a bucket's set, s for a
-- slice, d for dead letters, kh and kb for the holders of keys and the jobs that wait for keys; `which`: the bucket's number,
-- with the slice's bound, or the topic. Without a bound, the family s stands for the bounds of a bucket's slices. For the
-- family o, see `forgotten`.
local function orphans(family, which, ids)
  if family == 'o' then return forgotten(ids) end
  local set, found = ({b = BUCKET, s = SLICE, d = DEAD, kh = HOLDERS, kb = BLOCKED})[family] .. which, {}
  local function belongs(job)
    if family == 'b' then return in_bucket(job) and job.bucket == tonumber(which) end
    if family == 's' then
      local is_delayed = job.state == delayed and not score_in(BUCKET .. job.bucket, job.id)
      return is_delayed and find_in_slices(job.bucket, job.next, job.id) == set
    end
    return job.state == dead and job.topic == which
  end
  local function is_scheduled(name)
    local raw = redis.pcall('HGET', SCHEDULES, name)
    local schedule = type(raw) == 'string' and parse_schedule(name, raw)
    return schedule and schedule.next > 0 and schedule.bucket == tonumber(which)
  end
  local function is_right(id)
    if family == 's' and not string.find(which, ':') then return score_in(set, id) == 0 and has_slice(set, id) end
    if family == 'b' and string.sub(id, 1, 1) == SCHEDULE then return is_scheduled(string.sub(id, 2)) end
    if family == 'b' and string.sub(id, 1, 1) == PACE then return paced_by(id) ~= nil end
    if family == 'kh' then
      local listed, at = string.match(id, '@|:(.+)$'), string.match(id, '@|(%d+)$')
      if at then return tonumber(at) > now_ms - LATE_PACE end
      local job = inspect(listed or string.match(id, '@(.+)$') or '')
      if listed then return job and job.state == ready and job.topic == which and job.key and job.key .. '@|:' .. listed == id end
      return job and job.topic == which and job.key and uses_key(job) and holder(job) == id
    end
    if family == 'kb' then
      local job = inspect(id_of(id) or '')
      return is_blocked_as(job, which, id) and score_in(HOLDERS .. which, holder(job)) ~= 0
    end
    local job = inspect(id)
    return job and belongs(job)
  end
  for _, id in ipairs(ids) do
    if not is_right(id) and score_in(set, id) then found[#found + 1] = id end
  end
  return found, set
end
