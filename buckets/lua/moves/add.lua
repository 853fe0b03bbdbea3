#!lua
-- Store jobs until they are due; a job that is due now is ready at once.
-- arrows: none -> delayed, none -> ready, delayed -> delayed, delayed -> ready, ready -> delayed, ready -> ready,
--   dead -> delayed, dead -> ready
-- returns: a list; for consecutive jobs with the same result {result, state, jobs, due, jobs, due, …}: how many of them are
--   due at which time; for each group of several jobs a list of such results; result is created, existing, replaced or moved
--   (to another time), and in groups also dead or cancelled (deleted) for jobs that remain so
-- fails: for a job or a whole group, in its place in the list: ALREADY_EXISTS [state], RESERVED state, TOO_LATE state, NO_BODY,
--   TOPIC_FULL topic
-- repeat: yes
-- include: clock indexes timer_alarm retention events
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local by = ARGV[2]  -- string: the instance and any actor, recorded in events
local bucket = tonumber(ARGV[3])  -- integer: the bucket whose turn it is
local buckets = tonumber(ARGV[4])  -- integer: the number of buckets
local within = ARGV[5]  -- string: the topics that the caller may access (see within.lua), or empty for any
local jobs = {unpack(ARGV, 6)}  -- strings: for each run of like jobs: count, how, most, more, front; for each job: id, when, body
-- No id occurs twice. How: keep, reject, renew, replace, later or sooner; with the last two, an empty body keeps the old one.
-- Most: the most pending jobs that the topic may have, 0 for no limit. More: 1 if each job of the run is followed by another
-- job of its group, 0 if each job ends its group; a group is added whole or not at all. Front: the record up to the body,
-- without times. When: ms since the epoch, or `+` and ms from now.

-- Greater than all numbers of an earlier life that left no trace: each push in it took a script, and a script takes more than
-- 1 us.
local NEW_NUMBER, PLUS = now_us % 4294967296, 43
-- All jobs of a call go into one bucket, so that jobs that fall due together are moved together. Calls use the buckets in
-- turn, but calls with many jobs use random ones: otherwise a caller that alternates between one job and a hundred would fill
-- only every second bucket.
local home = (bucket + (#jobs > 8 and now_us or 0)) % buckets

-- When a job is due: at a time or, after a `+`, in that many ms from now.
local function due_at(when)
  local ms = tonumber(when)
  if string.byte(when) ~= PLUS then return math.max(ms, now_ms) end
  return ms == 0 and now_ms or from_ms + ms
end

-- Whether a topic should be marked as used now: at most every 10 s.
local function is_unmarked(topic) return now_ms - (index('ZSCORE', TOPICS, topic) or 0) > 10000 end

-- The fast path is for new jobs without a group, which nearly all jobs are. As in fast_path.lua, there is no table for each
-- job and hardly a function, and whatever like jobs share is made once. In case of doubt, all jobs take the complete path,
-- before anything is written; both have the same result.
-- `keys`: those of the jobs. Each job must end its group, have a body, have no limit of pending jobs, and have an unknown id.
local alone, run, keys = true, 1, {}
while alone and run < #jobs do
  local how = jobs[run + 1]
  alone = jobs[run + 2] == '0' and jobs[run + 3] ~= '1' and how ~= 'later' and how ~= 'sooner'
  local last = run + 2 + 3 * jobs[run]
  for at = run + 5, last, 3 do keys[#keys + 1] = JOB .. jobs[at] end
  run = last + 3
end
-- If events are on, their stream exists, so the same command shows that they are off.
keys[#keys + 1] = EVENTS
local fast = alone and redis.call('EXISTS', unpack(keys)) == 0
keys[#keys] = nil
if fast then
  told = false
else
  ask_for_events()
  fast = alone and told and redis.call('EXISTS', unpack(keys)) == 0
end

-- What the fast path collects: results {result, state, jobs, due, …}; the numbers of jobs and the bins by topic; entries of
-- ready lists, each list with its topic; entries of the bucket, and their earliest time; records.
local results, counts, bins, lists, members, first, records = {}, {}, {}, {}, {}, nil, {}
local sub, place, done = string.sub, 1, 0
while fast and place < #jobs do
  local front, at, last = jobs[place + 4], place + 5, place + 2 + 3 * jobs[place]
  local first_flags, priority, _, length = string.byte(front, 3, 6)
  local topic = sub(front, SHORT + 1, SHORT + length)
  if first_flags % 32 >= OPTIONAL and string.byte(front, SHORT + length + 3) == TAG_KEY then  -- see by_key.lua
    fast = false
    break
  end
  local numbers = under(counts, topic)
  local flags, state, result, opening, closing, entries, mark  -- of the previous job, usually equal
  numbers.created = (numbers.created or 0) + jobs[place]
  place = last + 3
  while at <= last do
    local when, n = jobs[at + 1], done
    local due = due_at(when)
    local is_ready, hourly = due <= now_ms, due - now_ms > FAR
    local now_flags = first_flags - delayed + (is_ready and ready or delayed) + (hourly and HOURLY or 0)
    if now_flags ~= flags then
      local word, number = WORDS[now_flags % 8], (NEW_NUMBER + (is_ready and 1 or 0)) % 4294967296
      if word ~= state then
        state, result = word, {'created', word}
        results[#results + 1] = result
      end
      if is_ready then
        -- Of the optional fields, the ttl affects which indexes hold a ready job.
        if first_flags % 32 >= OPTIONAL and not retention_in(front, SHORT + length + 1) then
          fast = false
          break
        end
        entries, mark = under(lists, READY .. priority .. ':' .. topic), whole(number) .. ':'
        entries.topic = topic
      end
      -- The delay of a delayed job is exactly the time from its creation to its due time.
      opening = string.char(VERSION, SHORT, now_flags, priority, home, length)
        .. struct.pack('>I6', is_ready and now_ms or from_ms)
      flags, closing = now_flags, sub(front, 25, 30) .. struct.pack('>I4', number) .. sub(front, SHORT + 1)
    end
    local score, head = whole(due), opening .. struct.pack('>I6I6', due, due) .. closing
    repeat
      done = done + 1
      local record = head .. jobs[at + 2]
      records[2 * done - 1], records[2 * done] = keys[done], record
      if told then
        told[2 * done - 1], told[2 * done] = jobs[at], #jobs[at + 2] <= EVENT_BODY and record or head
      end
      if is_ready then
        entries[#entries + 1] = mark .. jobs[at]
      else
        local m = #members
        members[m + 1], members[m + 2] = score, jobs[at]
      end
      at = at + 3
    until at > last or jobs[at + 1] ~= when
    n = done - n
    result[#result + 1] = n
    result[#result + 1] = due
    numbers[state] = (numbers[state] or 0) + n
    if not is_ready then
      local own, bin = under(bins, topic), bin_at(due, hourly)
      own[bin], first = (own[bin] or 0) + n, math.min(first or due, due)
    end
  end
end

-- The fast path writes in the order of planned_writes.lua.
if fast then
  local rings, topics = {}, {}
  for topic in pairs(counts) do topics[topic] = is_unmarked(topic) end
  if first then
    local set = BUCKET .. home
    if needs_alarm(set, first) then rings[1] = 'due ' .. home end
    index('ZADD', set, unpack(members))
  end
  for topic, unmarked in pairs(topics) do
    if unmarked then index('ZADD', TOPICS, whole(now_ms), topic) end
  end
  for list, entries in pairs(lists) do
    local length = index('RPUSH', list, unpack(entries))
    if length == #entries then rings[#rings + 1] = 'ready ' .. length .. ' ' .. entries.topic end
  end
  for topic, numbers in pairs(counts) do
    local key = COUNTS .. topic
    for field, n in pairs(numbers) do index('HINCRBY', key, field, whole(n)) end
  end
  for topic, own in pairs(bins) do write_bins(topic, own) end
  redis.call('MSET', unpack(records))
  if told then tell_all(VERB_ADD, EVENT_NEW) end
  for _, message in ipairs(rings) do redis.call('SPUBLISH', BELL, message) end
  return results
end

-- The complete path: jobs of groups, ids that may be known, limits of pending jobs, a ttl of a ready job.
local function complete_path()
  -- include: planned_writes record moves by_key within append place optional_fields pending_jobs slices
  told = told and {}  -- without what the fast path had planned
  local updates, rewrites = {}, {}  -- like `told`, for jobs moved to another time: with the old body, and with a new one
  -- Keep a live job. If its bucket does not hold it, it is put back: an add that is repeated after a crash must not answer
  -- `existing` for a job that would never fire.
  local function keep(job, result)
    if in_bucket(job) and not index('ZSCORE', BUCKET .. job.bucket, job.id)
      and not (job.state == delayed and find_in_slices(job.bucket, job.next, job.id)) then
      schedule(job)
    end
    return {result, WORDS[job.state], 1, job.due}
  end

  local function already(old) return redis.error_reply('ALREADY_EXISTS ' .. WORDS[old.state]) end

  -- Set the fields that the caller could not know.
  local function begin(job, when, old)
    job.due, job.bucket = due_at(when), job.key and by_key().bucket_of(job, buckets) or home
    job.number = old and old.number or NEW_NUMBER
    if job.key then
      local counts, planned = index('HMGET', COUNTS .. job.topic, 'created', 'replaced'), under(plan.counts, job.topic)
      local before = (tonumber(counts[1]) or 0) + (tonumber(counts[2]) or 0)
      job.order = (before + (planned.created or 0) + (planned.replaced or 0)) % 4294967296
    end
    job.lease = old and old.lease or 0
    if job.lease > 0 then job.header = LONG end
    job.state = job.due <= now_ms and ready or delayed
    job.created = job.state == delayed and from_ms or now_ms
    -- The id and `created` name a life, so `created` must be later than that of the previous life. A delay is exactly the
    -- time from `created` to the due time.
    local later = old and math.max(old.created + 1 - job.created, 0) or 0
    job.created = job.created + later
    if job.state == delayed and string.byte(when) == PLUS then job.due = job.due + later end
    job.next = job.due
  end

  -- Move a delayed job to another time, with a new body if there is one; a move against the direction of `how` changes
  -- nothing.
  local function shift(job, how, when, body)
    local due, rest = due_at(when), nil
    if due == job.next or (due > job.next) ~= (how == 'later') then return keep(job, 'existing') end
    if body ~= '' then
      local _, raw = read_front(job.id)
      rest = head_of(job, raw) .. string.sub(raw, job.header + #job.topic + 1, job.body_at - 1) .. body
    end
    leave(job)
    job.due, job.next, job.cause = due, due, 0
    if due <= now_ms then job.state = ready end
    enter(job)
    append(rest and plan.records or plan.headers, JOB .. job.id, header(job) .. (rest or ''))
    local adds = told
    told = told and (rest and rewrites or updates)
    tell(job, rest, rest)
    told = adds
    return {'moved', WORDS[job.state], 1, due}
  end

  local all_new = true  -- false once a job has replaced a live one
  -- Create the job of a run whose id is at the given place; `old` is the job or tombstone that it replaces, if any.
  local function start(run, at, old)
    local id, body = jobs[at], jobs[at + 2]
    if run.shifts and body == '' then body = string.sub(redis.call('GET', JOB .. id), old.body_at) end
    local job = parse(id, run.front)
    if old and old.state <= dead then
      leave(old)
      count(old.topic, 'deleted', 1)
    end
    begin(job, jobs[at + 1], old)
    enter(job)
    local rest = string.sub(run.front, SHORT + 1)
    if job.key then  -- it is the first optional field
      rest = string.sub(rest, 1, #job.topic + 11) .. struct.pack('>I4', job.order) .. string.sub(rest, #job.topic + 16)
    end
    rest = rest .. body
    append(plan.records, JOB .. id, header(job) .. rest)
    local replaces = old and old.state <= dead
    job.was, job.since = replaces and old.state or 0, replaces and old.next or 0
    all_new = all_new and not replaces
    tell(job, rest, true)
    local result = old and 'replaced' or 'created'
    count(job.topic, result, 1)
    return {result, WORDS[job.state], 1, job.due}
  end

  -- Whether the topic has reached its limit of pending jobs; a job that replaces a pending one of the topic does not add to
  -- them.
  local function full(topic, old, most)
    if old and old.topic == topic and (old.state == delayed or old.state == ready) then return false end
    return pending_jobs(topic) >= most
  end

  -- An error reply if a job may neither be moved to another time nor begin a new life, otherwise nil.
  local function not_shifted(topic, body, old)
    if old and old.topic ~= topic then return already(old) end
    if old and old.state == ready then return redis.error_reply('TOO_LATE ready') end
    local has_body = old and (old.state <= dead or old.keeps_body)
    if body == '' and not has_body then return redis.error_reply('NO_BODY ') end
  end

  -- What an add with `keep` answers for a dead or deleted job, which stays so. A delayed copy of an old add must not revive a
  -- deleted job, and calling a dead job existing would promise that it runs.
  local STAYS = {[dead] = 'dead', [deleted] = 'cancelled'}

  -- An error reply if a job may not be added, or nil; the existing job; and `existing`, `dead` or `cancelled` if that job
  -- stays as it is, or `shifted` if it is moved to another time.
  local function look_up(run, at)
    local id, most = jobs[at], tonumber(run.most)
    local old = read_job(id)
    -- The operator chooses the topics of a virtual topic, even topics that the caller may not access. In those, an add may
    -- only meet jobs that another add to a virtual topic made.
    if old and not reaches(old) then
      local job = parse(id, run.front)
      if old.topic ~= job.topic or not (old.copy and job.copy) then return redis.error_reply('ALREADY_EXISTS ') end
    end
    if run.shifts then
      local refusal = not_shifted(parse(id, run.front).topic, jobs[at + 2], old)
      if refusal then return refusal end
      if old and old.state == delayed then return nil, old, 'shifted' end
    end
    if old and run.how == 'keep' then return nil, old, STAYS[old.state] or 'existing' end
    if old and run.how == 'renew' and old.state < dead then return nil, old, 'existing' end
    if old and run.how == 'reject' then return already(old) end
    if old and old.state == reserved then return redis.error_reply('RESERVED reserved') end
    if most > 0 then
      local topic = parse(id, run.front).topic
      if full(topic, old, most) then return redis.error_reply('TOPIC_FULL ' .. topic) end
    end
    return nil, old
  end

  -- Add a group of {run, at}: all of its jobs, or none, and then returns the error. A group that consists only of dead jobs
  -- and tombstones of deleted ones is refused; the error names the state of a dead job, which can be kicked, if there is one.
  local function add(group)
    local olds, stays, results, over, why = {}, {}, {}, 0, nil
    for n, each in ipairs(group) do
      local refusal
      refusal, olds[n], stays[n] = look_up(each[1], each[2])
      if refusal then return refusal end
      if stays[n] == 'dead' or stays[n] == 'cancelled' then
        over = over + 1
        if not why or stays[n] == 'dead' then why = olds[n] end
      end
    end
    if over == #group then return already(why) end
    for n, each in ipairs(group) do
      local run, at = each[1], each[2]
      if stays[n] == 'shifted' then
        results[n] = shift(olds[n], run.how, jobs[at + 1], jobs[at + 2])
      else
        results[n] = stays[n] and keep(olds[n], stays[n]) or start(run, at, olds[n])
      end
    end
    return #group == 1 and results[1] or results
  end

  local results, group, place = {}, {}, 1
  while place < #jobs do
    local run = {how = jobs[place + 1], most = jobs[place + 2], front = jobs[place + 4]}
    run.shifts = run.how == 'later' or run.how == 'sooner'
    local first, last, more = place + 5, place + 2 + 3 * jobs[place], jobs[place + 3] == '1'
    for at = first, last, 3 do
      group[#group + 1] = {run, at}
      if not more then
        results[#results + 1] = add(group)
        group = {}
      end
    end
    place = last + 3
  end
  for topic in pairs(plan.counts) do
    if is_unmarked(topic) then plan.topics[topic] = now_ms end
  end
  if told and all_new then
    for at = 2, #told, 2 do told[at] = string.sub(told[at], 8) end
  end
  commit(VERB_ADD, all_new and EVENT_NEW or 0)
  if told then  -- after the bell, which nobody receives before the script ends
    told = updates
    tell_all(VERB_UPDATE, 0)
    told = rewrites
    tell_all(VERB_REWRITE, 0)
  end
  return results
end

return complete_path()
