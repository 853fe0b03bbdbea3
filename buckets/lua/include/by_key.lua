-- include: indexes planned_writes record append key_order
-- The jobs of a topic that have the same key run one after the other, or a few at a time. A job that may run holds its key: in
-- the ready list, reserved, or delayed again after a delivery. The other ready jobs of a busy key are blocked, in the order in
-- which they will run. HOLDERS .. topic and BLOCKED .. topic are sorted sets in the order of their members, and all scores
-- are 0, so the entries of a key are together. An idle key has none. A holder that leaves makes room for the next in the same
-- script.
-- Whether a job holds its key now, apart from what is planned.
local function holds_key(job) return index('ZSCORE', HOLDERS .. job.topic, holder(job)) == '0' end

-- How many jobs hold a job's key now, apart from what is planned.
local function holders_of(job) return index('ZLEXCOUNT', HOLDERS .. job.topic, range_of(job.key)) end

-- What is planned for the key of a job. `out`: its holders that leave, with the beginning of their lives; `into`: its new
-- holders; `ready`: jobs that became ready and have not got the key; `unblock`: entries that are no longer blocked;
-- `is_doubtful`: true if there may be room although no holder leaves.
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

-- Take a live job from its key. Returns the name of its state in the counts.
local function leave_key(job)
  if not uses_key(job) then return WORDS[job.state] end
  local key = plan_of(job)
  if holds_key(job) then
    key.out[job.id] = job.created
  elseif job.state == ready then
    key.unblock[blocked_entry(job)] = true
    return 'blocked'
  end
  return WORDS[job.state]
end

-- Give a job of a new state to its key. Returns true for a ready job that is blocked until the key is settled.
local function enter_key(job)
  if not uses_key(job) then return false end
  local key = plan_of(job)
  if key.out[job.id] == job.created then
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

-- Plan which jobs of a key may run: the first of those that are blocked and those that became ready.
local function settle(key)
  for place, job in ipairs(key.ready) do job.place = place end
  table.sort(key.ready, function(one, other)
    if runs_before(one, other) then return true end
    return not runs_before(other, one) and one.place < other.place
  end)
  local at, job, entry = 1, nil, nil
  if key.is_doubtful or #key.ready > 0 or next(key.out) then job, entry = first_blocked(key) end  -- else nobody left
  local busy = (key.ready[1] or job) and holders_of({topic = key.topic, key = key.name})
  for _ in pairs(busy and key.out or {}) do busy = busy - 1 end
  for _ in pairs(busy and key.into or {}) do busy = busy + 1 end
  while key.ready[at] or job do
    local new = key.ready[at]
    local is_new = new and not (job and runs_before(job, new))
    local first = is_new and new or job
    if first.most > 0 and busy >= first.most then break end
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
    append(under(under(plan, 'block'), key.topic), '0', blocked_entry(key.ready[each]))
  end
  for _, each in pairs(key.into) do append(under(under(plan, 'hold'), key.topic), '0', holder(each)) end
  for id in pairs(key.out) do
    if not key.into[id] then append(under(under(plan, 'unhold'), key.topic), key.name .. '@' .. id) end
  end
  for each in pairs(key.unblock) do append(under(under(plan, 'unblock'), key.topic), each) end
end

function settle_keys()
  for _, key in ipairs(plan.keys_in_order) do settle(key) end
end
