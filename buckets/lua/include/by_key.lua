-- include: clock indexes planned_writes record append
-- The jobs of a topic that have the same key run one after the other, or a few at a time. A job that may run holds its key: in
-- the ready list, reserved, or delayed again after a delivery. The other ready jobs of a busy key are blocked, in the order in
-- which they will run. HOLDERS .. topic and BLOCKED .. topic are sorted sets in the order of their members, and all scores
-- are 0, so the entries of a key are together. An idle key has none. A holder that leaves makes room for the next in the same
-- script. A key with a rate has also an entry for its pace among the holders: while a job of it is in the ready list, that job's
-- id, and after its delivery the time of the next one, at which the timer of a bucket meets an entry.
local function functions_of_keys()
  -- include: key_order
  local in_order = {}  -- the keys that were met

  -- What is planned for a key. `out`: its holders that leave, with the beginning of their lives; `into`: its new holders;
  -- `ready`: jobs that became ready and have not got the key; `unblock`: entries that are no longer blocked; `pace`: see
  -- `pace_of`; `is_listed`: true if this plan puts the pace's job into the list; `is_doubtful`: true if there may be room
  -- although no holder leaves; `still_blocked`: the place of the first in `ready` that is blocked.
  local settle_all
  local function plan_of(topic, name)
    local keys = under(under(plan, 'keys'), topic)
    local key = keys[name]
    if not key then
      key = {topic = topic, name = name, out = {}, into = {}, ready = {}, unblock = {}}
      keys[name], plan.settle = key, settle_all
      append(in_order, key)
    end
    return key
  end

  -- Whether a job holds its key now, apart from what is planned.
  local function holds(job) return index('ZSCORE', HOLDERS .. job.topic, holder(job)) == '0' end

  -- How many jobs hold a key now, apart from what is planned.
  local function count_holders(topic, name) return index('ZLEXCOUNT', HOLDERS .. topic, range_of(name)) end

  -- How many jobs will hold a key, as planned so far.
  local function busy_of(key)
    local busy = count_holders(key.topic, key.name)
    for _ in pairs(key.out) do busy = busy - 1 end
    for _ in pairs(key.into) do busy = busy + 1 end
    return busy
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

  -- Whether the pace of a key holds a job back.
  local function is_paced(key, job)
    local pace = job.gap > 0 and pace_of(key)
    if not pace then return false end
    local listed = string.match(pace, '^:(.+)$')
    return listed and (key.is_listed or not key.out[listed]) or not listed and tonumber(pace) > now_ms
  end

  -- Have the timer of a bucket look at the pace of a key at a time.
  local function schedule_pace(key, number, at)
    append(under(plan.bucket, number), whole(at), pace_entry(key.topic, key.name))
    plan.first[number] = math.min(plan.first[number] or at, at)
  end

  -- Note the delivery of a job whose key has a rate.
  local function note_delivery(job)
    if job.gap == 0 then return end
    local key, at = plan_of(job.topic, job.key), math.ceil((now_us + job.gap) / 1000)
    pace_of(key)
    key.pace = string.format('%015d', at)
    schedule_pace(key, job.bucket, at)
  end

  -- The timer of a bucket has met the entry of a key's pace.
  local function meet_pace(entry, number)
    under(plan.unbucket, number)[entry] = true
    local topic, name = paced_by(entry)
    local key = topic and plan_of(topic, name)
    local at = key and tonumber(pace_of(key) or nil)
    if at and at > now_ms then
      schedule_pace(key, number, at)
      under(plan.unbucket, number)[entry] = nil
    elseif at then
      key.pace, key.is_doubtful = false, true
    end
  end

  -- Take a live job from its key. Returns the name of its state in the counts.
  local function leave_key(job)
    if not uses_key(job) then return WORDS[job.state] end
    local key = plan_of(job.topic, job.key)
    if holds(job) then
      key.out[job.id] = job.created
      if job.gap > 0 then pace_of(key) end
    elseif job.state == ready and index('ZSCORE', BLOCKED .. job.topic, blocked_entry(job)) == '0' then
      key.unblock[blocked_entry(job)] = true
      return 'blocked'
    end
    return WORDS[job.state]
  end

  -- Whether a holder that becomes ready keeps its key. After its back-off it does, unless the key has a rate, which also counts
  -- retries, or the job is one too many, having come from another Redis or a journal. A reserved one comes back in its order.
  local function keeps_key(key, job)
    if key.out[job.id] ~= job.created then return false end
    if job.state ~= ready or job.was == ready then return true end
    return job.was == delayed and job.gap == 0 and (job.most == 0 or busy_of(key) < job.most)
  end

  -- Give a job of a new state to its key. Returns true for a ready job that is blocked until the key is settled.
  local function enter_key(job)
    if not uses_key(job) then return false end
    local key = plan_of(job.topic, job.key)
    if keeps_key(key, job) then
      key.out[job.id] = nil
    elseif job.state == ready then
      append(key.ready, job)
      return true
    else
      key.into[job.id] = job
    end
    return false
  end

  -- Whether a pop of one id must be refused because of the job's key.
  local function refuses(job)
    local key = plan_of(job.topic, job.key)
    if is_paced(key, job) and pace_of(key) ~= ':' .. job.id then return true end
    return job.most > 0 and not holds(job) and count_holders(job.topic, job.key) >= job.most
  end

  -- The first blocked job of a key after an entry, or from the beginning; nil if there is none. Stale entries are dropped.
  local function next_blocked(key, after)
    local set, low, high = BLOCKED .. key.topic, range_of(key.name)
    local entry = after
    while true do
      entry = index('ZRANGEBYLEX', set, entry and '(' .. entry or low, high, 'LIMIT', '0', '1')[1]
      if not entry then return nil end
      local id = id_of(entry)
      local job = id and not key.unblock[entry] and read_front(id)
      if is_blocked_as(job, key.topic, entry) then return job, entry end
      key.unblock[entry] = true
    end
  end

  -- Put a job of a key into the ready list.
  local function list(job)
    count(job.topic, 'ready', 1)
    count(job.topic, 'blocked', -1)
    append(under(under(plan.push, job.topic), job.priority), string.format('%d:', job.number) .. job.id)
  end

  -- Plan which jobs of a key may run: the first of those that are blocked and those that became ready. A job does not wait for an
  -- entry of its own, which a migration or an older version of the service has left.
  local function settle(key)
    local may_run = key.is_doubtful or next(key.out) or next(key.unblock)
    local busy = (key.ready[1] or may_run) and busy_of(key)
    for place, job in ipairs(key.ready) do
      job.place = place
      if busy > 0 and not key.out[job.id] and holds(job) then key.out[job.id], busy = job.created, busy - 1 end
    end
    local function is_held_back(job) return (job.most > 0 and busy >= job.most) or is_paced(key, job) end
    for _, job in ipairs(key.ready) do may_run = may_run or not is_held_back(job) end
    table.sort(key.ready, function(one, other)
      if runs_before(one, other) then return true end
      return not runs_before(other, one) and one.place < other.place
    end)
    local at, job, entry = 1, nil, nil
    if may_run then job, entry = next_blocked(key) end
    while key.ready[at] or job do
      local new = key.ready[at]
      local is_new = new and not (job and runs_before(job, new))
      local first = is_new and new or job
      if is_held_back(first) then break end
      if first.gap > 0 then key.pace, key.is_listed = ':' .. first.id, true end
      busy, key.into[first.id] = busy + 1, first
      list(first)
      if is_new then
        at = at + 1
      else
        key.unblock[entry] = true
        job, entry = next_blocked(key, entry)
      end
    end
    local listed = key.pace and string.match(key.pace, '^:(.+)$')
    if listed and key.out[listed] and not key.is_listed then key.pace = false end
    key.still_blocked = at
  end

  -- Write what is planned for all keys: first the new entries, and after the records the removal of old ones.
  local function write_keys()
    local hold, unhold, block, unblock = {}, {}, {}, {}
    for _, key in ipairs(in_order) do
      for at = key.still_blocked, #key.ready do
        local blocked = blocked_entry(key.ready[at])
        key.unblock[blocked] = nil  -- a job that was blocked before has the same entry
        append(under(block, key.topic), '0', blocked)
      end
      for entry in pairs(key.unblock) do append(under(unblock, key.topic), entry) end
      for _, job in pairs(key.into) do append(under(hold, key.topic), '0', holder(job)) end
      for id in pairs(key.out) do
        if not key.into[id] then append(under(unhold, key.topic), key.name .. '@' .. id) end
      end
      if key.pace ~= key.pace_was then
        local prefix = key.name .. '@' .. PACE
        if key.pace then append(under(hold, key.topic), '0', prefix .. key.pace) end
        if key.pace_was then append(under(unhold, key.topic), prefix .. key.pace_was) end
      end
    end
    for topic, members in pairs(hold) do index('ZADD', HOLDERS .. topic, unpack(members)) end
    for topic, members in pairs(block) do index('ZADD', BLOCKED .. topic, unpack(members)) end
    plan.forget_keys = function()
      for topic, members in pairs(unhold) do index('ZREM', HOLDERS .. topic, unpack(members)) end
      for topic, members in pairs(unblock) do index('ZREM', BLOCKED .. topic, unpack(members)) end
    end
  end

  function settle_all()
    for _, key in ipairs(in_order) do settle(key) end
    write_keys()
  end

  -- The bucket of a key's jobs until their first delivery: the same one, so that its timer meets them in their order.
  local function bucket_of(job, buckets)
    return tonumber(string.sub(redis.sha1hex(job.topic .. '@' .. job.key), 1, 8), 16) % buckets
  end

  return {plan_of = plan_of, holds = holds, count_holders = count_holders, note_delivery = note_delivery, meet_pace = meet_pace,
    leave_key = leave_key, enter_key = enter_key, refuses = refuses, bucket_of = bucket_of}
end

-- The functions of this file. They are only made when the first job with a key is met, as most scripts meet none.
local made
local function by_key()
  made = made or functions_of_keys()
  return made
end
