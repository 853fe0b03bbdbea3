#!lua flags=allow-oom
-- Move a page of what is due out of one bucket.
-- arrows: delayed -> ready, delayed -> dead, reserved -> ready, reserved -> delayed, reserved -> dead, ready -> dead
-- returns: {moved, wait, died, topic, late, jobs, topic, late, jobs, …}: entries processed; us until the next is due, 0 if
--   some are due now, -1 for an empty bucket; the jobs that died, as in `die` (moves.lua); how late (us) how many jobs of a
--   topic became ready
-- fails: never
-- repeat: yes
-- include: clock indexes fast_path
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local bucket = tonumber(ARGV[2])  -- integer: which one
local page = ARGV[3]  -- integer: entries at most

-- What is not simple. Takes what the fast path has planned until now (see planned_writes.lua) and plans on.
local function complete_path(push, due, headers, out)
  -- include: record planned_writes moves give_back
  -- When this bucket's timer should look at the job; nil if the job does not belong here.
  local function time_of(job)
    if not in_bucket(job) or job.bucket ~= bucket then return nil end
    return score(job)
  end

  -- The record is the truth: an entry that it does not confirm is removed, and one with a wrong time is corrected. Returns the
  -- topic and the time of a job that became ready.
  local function process(id)
    local job = read_job(id)
    local at = job and time_of(job)
    if not at then
      under(plan.unbucket, bucket)[id] = true
    elseif at > now_ms then
      schedule(job)
    elseif time_over(job) then
      die(job, CAUSE_TTL, 'ttl')
    else
      if job.state == reserved then
        job.cause = CAUSE_LEASE
        give_back(job)
      else
        move(job, ready)
      end
      if job.state == ready then return job.topic, at end
    end
  end

  plan.push, plan.due, plan.headers, plan.out[bucket] = push, due, headers, out
  -- Write the result of all the jobs, the simple ones and the others.
  local function commit_all(moved)
    count_moves(moved, 'delayed', 'ready')
    commit()
  end

  return process, commit_all, plan
end

-- The fast path (include/fast_path.lua), for delayed jobs. What it collects: the number of jobs moved by topic; the others as in
-- planned_writes.lua; and for the reply, how many jobs became ready, by topic and by the time they were due.
local moved, push, due, headers, out = {}, {}, {}, {}, {}
local promoted = {}
local head_of, at, topic, bins, bin, times, entries, mark, new_head  -- of the job before: usually the same
local process, commit_all, plan
local sub, read = string.sub, redis.pcall
local LEAD, since = string.char(VERSION, SHORT), struct.pack('>I6', now_ms)
local ids = index('ZRANGE', BUCKET .. bucket, '-inf', whole(now_ms), 'BYSCORE', 'LIMIT', '0', page)
for _, id in ipairs(ids) do
  local key = JOB .. id
  local front = read('GETRANGE', key, '0', '127')
  local last, flags, priority, at_bucket = simple(front, delayed, SHORT)
  local head = last and at_bucket == bucket and sub(front, 1, last)
  if head and head ~= head_of then
    local ttr, tries, number
    head_of, at, ttr, tries, number = head, struct.unpack('>I6I4HI4', front, 19)
    if at <= now_ms then
      topic, number = sub(front, SHORT + 1, last), (number + 1) % 4294967296
      bins, bin, times = under(due, topic), bin_at(at, flags >= HOURLY), under(promoted, topic)
      entries, mark = under(under(push, topic), priority % 16), whole(number) .. ':'
      new_head = LEAD .. string.char(flags - delayed + ready) .. sub(front, 4, 18) .. since .. sub(front, 25, 30)
        .. struct.pack('>I4', number)
    end
  end
  if head and at <= now_ms then
    local n = #headers
    entries[#entries + 1] = mark .. id
    moved[topic] = (moved[topic] or 0) + 1
    bins[bin], times[at] = (bins[bin] or 0) - 1, (times[at] or 0) + 1
    headers[n + 1], headers[n + 2] = key, new_head
    out[#out + 1] = id
  else
    if not process then process, commit_all, plan = complete_path(push, due, headers, out) end
    local its_topic, its_time = process(id)
    if its_topic then
      local its_times = under(promoted, its_topic)
      its_times[its_time] = (its_times[its_time] or 0) + 1
    end
  end
end

if commit_all then
  commit_all(moved)
else
  local rings = {}
  for topic, by_priority in pairs(push) do
    for priority, entries in pairs(by_priority) do
      local length = index('RPUSH', READY .. priority .. ':' .. topic, unpack(entries))
      if length == #entries then rings[#rings + 1] = 'ready ' .. length .. ' ' .. topic end
    end
  end
  for topic, n in pairs(moved) do
    n = whole(n)
    index('HINCRBY', COUNTS .. topic, 'delayed', '-' .. n)
    index('HINCRBY', COUNTS .. topic, 'ready', n)
    write_bins(topic, due[topic])
  end
  for at = 1, #headers, 2 do redis.call('SETRANGE', headers[at], '0', headers[at + 1]) end
  if #out > 0 then index('ZREM', BUCKET .. bucket, unpack(out)) end
  for _, message in ipairs(rings) do redis.call('SPUBLISH', BELL, message) end
end

local head = index('ZRANGE', BUCKET .. bucket, '0', '0', 'WITHSCORES')
local answer, n = {#ids, head[2] and math.max(0, tonumber(head[2]) * 1000 - now_us) or -1, plan and plan.died or {}}, 3
for topic, times in pairs(promoted) do
  for at, jobs in pairs(times) do
    answer[n + 1], answer[n + 2], answer[n + 3] = topic, now_us - at * 1000, jobs
    n = n + 3
  end
end
return answer
