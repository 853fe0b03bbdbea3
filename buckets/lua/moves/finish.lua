#!lua flags=allow-oom
-- Finish jobs whose work is done; or settle jobs, which also deletes those that were never delivered.
-- arrows: reserved -> finished, delayed -> finished, ready -> finished, dead -> finished, delayed -> deleted, ready -> deleted,
--   dead -> deleted
-- returns: {{topic, jobs, topic, jobs, …}, finished or deleted, …}: how many jobs of each topic were finished; then for each
--   job its new state
-- fails: for a job, in its place in the list: NOT_FOUND [state], NOT_RESERVED state, STALE_LEASE state
-- repeat: yes
-- include: clock indexes fast_path events
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local by = ARGV[2]  -- string: the instance and any actor, recorded in events
local within = ARGV[3]  -- string: the topics that the caller may access (see within.lua), or empty for any
local settles = ARGV[4]  -- integer: 1 to delete jobs that were never delivered, or 0
local jobs = {unpack(ARGV, 5)}  -- strings: id, lease or empty, …, without duplicate ids

-- The path for jobs that are not simple. It continues from what the fast path has planned so far (see planned_writes.lua).
local function complete_path(out, tombs, gone)
  -- include: record planned_writes finish_job delete_job within
  local function finish(id, lease)
    local job = read_job(id)
    if job and not reaches(job) then job = nil end
    if job and settles == '1' and (job.state == deleted or job.deliveries == 0) then
      delete_job(job)
      return 'deleted'
    end
    return finish_job(job, lease)
  end

  plan.out, plan.tombs, plan.gone = out, tombs, gone
  -- Write the results of all jobs, simple or not, and note how many were finished.
  local function commit_all(ended, numbers)
    count_moves(ended, 'reserved', 'finished')
    finished_by_topic(numbers)
    commit(VERB_FINISH)
  end

  return finish, commit_all
end

ask_for_events()
local ended, out, tombs, gone = {}, {}, {}, {}
local numbers = {}
local results, finish, commit_all = {numbers}, nil, nil
if within ~= '' or settles == '1' then
  finish, commit_all = complete_path(out, tombs, gone)
  for at = 1, #jobs, 2 do results[#results + 1] = finish(jobs[at], jobs[at + 1]) end
  commit_all(ended, numbers)
  return results
end

-- The fast path (include/fast_path.lua) is for reserved jobs that were delivered. What it collects: `ended`, the number of
-- finished jobs by topic; `out`, `tombs` and `gone` as in planned_writes.lua.
local head_of, retention_of, topic, deliveries, step, newest, members, tomb, lasts, event  -- of the previous job, usually equal
local lease_of, shown  -- also its lease, as passed and as a number
local sub, read = string.sub, redis.pcall
for at = 1, #jobs, 2 do
  local id, lease = jobs[at], jobs[at + 1]
  local key = JOB .. id
  if lease ~= lease_of then lease_of, shown = lease, tonumber(lease) end
  local front = read('GETRANGE', key, '0', '127')
  local last, flags, _, at_bucket, retention = simple(front, reserved, LONG)
  local head = last and sub(front, 1, last)
  if head and (head ~= head_of or retention ~= retention_of) then
    head_of, retention_of, topic = head, retention, sub(front, LONG + 1, last)
    deliveries, step, newest = struct.unpack('>I3BI7', front, 37)
    members, lasts = out[at_bucket] or {}, whole(retention + longer)
    out[at_bucket] = members
    tomb = string.char(VERSION, LONG, flags >= COPY and finished + COPY or finished) .. sub(front, 4, 18)
      .. struct.pack('>I6', now_ms + retention) .. sub(front, 25, last)
    event = told and string.char(reserved) .. sub(front, 19, 24) .. tomb
  end
  if head and deliveries > 0 and (lease == '' or shown == newest) then
    ended[topic] = (ended[topic] or 0) + 1
    members[#members + 1] = id
    if told then
      local n = #told
      told[n + 1], told[n + 2] = id, event
    end
    if retention > 0 then
      local n = #tombs
      tombs[n + 1], tombs[n + 2], tombs[n + 3] = key, tomb, lasts
    else
      gone[#gone + 1] = key
    end
    results[#results + 1] = 'finished'
  else
    if not finish then finish, commit_all = complete_path(out, tombs, gone) end
    results[#results + 1] = finish(id, lease)
  end
end

if commit_all then
  commit_all(ended, numbers)
  return results
end
for topic, n in pairs(ended) do
  numbers[#numbers + 1], numbers[#numbers + 2] = topic, n
  n = whole(n)
  index('HINCRBY', COUNTS .. topic, 'reserved', '-' .. n)
  index('HINCRBY', COUNTS .. topic, 'finished', n)
end
for at = 1, #tombs, 3 do redis.call('SET', tombs[at], tombs[at + 1], 'PX', tombs[at + 2]) end
if #gone > 0 then redis.call('UNLINK', unpack(gone)) end
for number, members in pairs(out) do index('ZREM', BUCKET .. number, unpack(members)) end
if told then tell_all(VERB_FINISH, 0) end
return results
