-- include: clock indexes planned_writes record append key_order
-- The jobs of a topic that have the same key run one after the other, or a few at a time. A job that may run holds its key: in
-- the ready list, reserved, or delayed again after a delivery. The other ready jobs of a busy key are blocked, in the order in
-- which they will run. HOLDERS .. topic and BLOCKED .. topic are sorted sets in the order of their members, and all scores
-- are 0, so the entries of a key are together. An idle key has none. A holder that leaves makes room for the next in the same
-- script. A key with a rate has also an entry for its pace among the holders: while a job of it is in the ready list, that job's
-- id, and after its delivery the time of the next one, at which the timer of a bucket meets an entry.
-- Whether a job holds its key now, apart from what is planned.
local function holds_key(job) return index('ZSCORE', HOLDERS .. job.topic, holder(job)) == '0' end

-- How many jobs hold a job's key now, apart from what is planned.
local function holders_of(job) return index('ZLEXCOUNT', HOLDERS .. job.topic, range_of(job.key)) end

-- What is planned for the key of a job. `out`: its holders that leave, with the beginning of their lives; `into`: its new
-- holders; `ready`: jobs that became ready and have not got the key; `unblock`: entries that are no longer blocked;
-- `pace`: see `pace_of`; `is_listed`: true if this plan puts the pace's job into the list; `is_doubtful`: true if there may be
-- room although no holder leaves.
local settle_keys
local function plan_of(job)
  local keys = under(under(plan, 'keys'), job.topic)
  local key = keys[job.key]
  if not key then
    key = {topic = job.topic, name = job.key, changed = 0, out = {}, into = {}, ready = {}, unblock = {}}
    keys[job.key] = key
    append(under(plan, 'keys_in_order'), key)
    plan.settle = settle_keys
  end
  return key
end

-- The pace of a key: false without one, a `:` and the id of the job in the ready list, or the ms since the epoch of the next
-- delivery, in digits.
local function pace_of(key)
  if key.pace == nil then
    local low, high = pace_range(key.name)
    local entry = index('ZRANGEBYLEX', HOLDERS .. key.topic, low, high, 'LIMIT', '0', '1')[1]
    key.pace = entry and string.sub(entry, #key.name + 3)
    key.pace = key.pace or false
    key.pace_was = key.pace
  end
  return key.pace
end

-- Have the timer of a bucket look at the pace of a key at a time.
local function schedule_pace(key, number, at)
  append(under(plan.bucket, number), whole(at), pace_entry(key.topic, key.name))
  plan.first[number] = math.min(plan.first[number] or at, at)
end

-- Note the delivery of a job whose key has a rate.
local function pace_key(job)
  local key, at = plan_of(job), math.ceil((now_us + job.gap) / 1000)
  pace_of(key)
  key.pace = string.format('%015d', at)
  schedule_pace(key, job.bucket, at)
end

-- The timer of a bucket has met the entry of a key's pace.
local function meet_pace(entry, number)
  under(plan.unbucket, number)[entry] = true
  local topic, name = paced_by(entry)
  local key = topic and plan_of({topic = topic, key = name})
  local at = key and tonumber(pace_of(key) or nil)
  if at and at > now_ms then
    schedule_pace(key, number, at)
    under(plan.unbucket, number)[entry] = nil
  elseif at then
    key.pace, key.is_doubtful = false, true
  end
end

-- Whether the pace of a key holds its next job back.
local function is_paced(key)
  local pace = pace_of(key)
  if not pace then return false end
  local listed = string.match(pace, '^:(.+)$')
  return listed and (key.is_listed or not key.out[listed]) or not listed and tonumber(pace) > now_ms
end

-- Take a live job from its key. Returns the name of its state in the counts.
local function leave_key(job)
  if not uses_key(job) then return WORDS[job.state] end
  local key = plan_of(job)
  if holds_key(job) then
    key.out[job.id] = job.created
    if job.gap > 0 then pace_of(key) end
  elseif job.state == ready then
    key.unblock[blocked_entry(job)] = true
    return 'blocked'
  end
  return WORDS[job.state]
end

-- How many jobs will hold a key, as planned so far.
local function busy_of(key)
  local busy = holders_of({topic = key.topic, key = key.name})
  for _ in pairs(key.out) do busy = busy - 1 end
  for _ in pairs(key.into) do busy = busy + 1 end
  return busy
end

-- Whether a holder that becomes ready may keep its key: one that came from another Redis or a journal may be one too many.
local function has_room(key, job) return job.most == 0 or busy_of(key) < job.most end

-- Give a job of a new state to its key. Returns true for a ready job that is blocked until the key is settled.
local function enter_key(job)
  if not uses_key(job) then return false end
  local key = plan_of(job)
  if key.out[job.id] == job.created and (job.state ~= ready or job.was == ready or has_room(key, job)) then
    key.out[job.id] = nil
  elseif job.state == ready then
    append(key.ready, job)
    return true
  else
    key.into[job.id] = job
  end
  return false
end

-- The first blocked job of a key, or nil. Stale entries are dropped.
local function first_blocked(key)
  local set, low, high = BLOCKED .. key.topic, range_of(key.name)
  local at = 0
  while true do
    local entry = index('ZRANGEBYLEX', set, low, high, 'LIMIT', whole(at), '1')[1]
    if not entry then return nil end
    local id = id_of(entry)
    local job = id and not key.unblock[entry] and read_front(id)
    if is_blocked_as(job, key.topic, entry) then return job, entry end
    key.unblock[entry] = true
    at = at + 1
  end
end

-- Plan which jobs of a key may run: the first of those that are blocked and those that became ready. A job does not wait for an
-- entry of its own, which a migration or an older version of the service has left.
local function settle(key)
  for place, job in ipairs(key.ready) do job.place = place end
  table.sort(key.ready, function(one, other)
    if runs_before(one, other) then return true end
    return not runs_before(other, one) and one.place < other.place
  end)
  local at, job, entry = 1, nil, nil
  local may_run = key.is_doubtful or next(key.out) or next(key.unblock)
  local busy = (key.ready[1] or may_run) and busy_of(key)
  for _, each in ipairs(busy and busy > 0 and key.ready or {}) do
    if not key.out[each.id] and holds_key(each) then key.out[each.id], busy = each.created, busy - 1 end  -- left by others
  end
  local function is_held_back(each) return (each.most > 0 and busy >= each.most) or (each.gap > 0 and is_paced(key)) end
  for _, each in ipairs(key.ready) do may_run = may_run or not is_held_back(each) end
  if may_run then job, entry = first_blocked(key) end
  while key.ready[at] or job do
    local new = key.ready[at]
    local is_new = new and not (job and runs_before(job, new))
    local first = is_new and new or job
    if is_held_back(first) then break end
    if first.gap > 0 then key.pace, key.is_listed = ':' .. first.id, true end
    busy, key.into[first.id] = busy + 1, first
    count(key.topic, 'ready', 1)
    count(key.topic, 'blocked', -1)
    append(under(under(plan.push, key.topic), first.priority), string.format('%d:', first.number) .. first.id)
    if is_new then
      at = at + 1
    else
      key.unblock[entry] = true
      job, entry = first_blocked(key)
    end
  end
  for each = at, #key.ready do
    local blocked = blocked_entry(key.ready[each])
    key.unblock[blocked] = nil  -- a job that was blocked before has the same entry
    append(under(under(plan, 'block'), key.topic), '0', blocked)
  end
  for _, each in pairs(key.into) do append(under(under(plan, 'hold'), key.topic), '0', holder(each)) end
  for id in pairs(key.out) do
    if not key.into[id] then append(under(under(plan, 'unhold'), key.topic), key.name .. '@' .. id) end
  end
  local listed = key.pace and string.match(key.pace, '^:(.+)$')
  if listed and key.out[listed] and not key.is_listed then key.pace = false end
  if key.pace ~= key.pace_was then
    local prefix = key.name .. '@' .. PACE
    if key.pace then append(under(under(plan, 'hold'), key.topic), '0', prefix .. key.pace) end
    if key.pace_was then append(under(under(plan, 'unhold'), key.topic), prefix .. key.pace_was) end
  end
  for each in pairs(key.unblock) do append(under(under(plan, 'unblock'), key.topic), each) end
end

function settle_keys()
  for _, key in ipairs(plan.keys_in_order) do settle(key) end
end
