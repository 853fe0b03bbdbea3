-- include: clock moves
-- The end of a lease without a finish: the lease ran out, or its worker released the job.
local function time_over(job)
  return job.ttl and job.due + job.ttl <= now_ms
end

-- Adds up to a tenth to a delay, depending on id and step, so that jobs that failed together do not come back together.
local function with_jitter(delay, id, step)
  local n = tonumber(string.sub(redis.sha1hex(id .. ':' .. step), 1, 4), 16)
  return delay + math.floor(delay * n / 655360)
end

-- The delay of the current step, in ms: on the job's own ladder or, if it has none, on the default ladder, which may be nil.
-- Moves the job on to the next step.
local function ladder_delay(job, default)
  local own, step = job.optional and job.optional[TAG_BACKOFF], job.step
  local ladder = own or default
  if not ladder then return 0 end
  job.step = math.min(step + 1, 255)
  if ladder == '' then return 0 end
  local delay = struct.unpack('>I6', ladder, 1 + 6 * math.min(step, #ladder / 6 - 1))
  return own and delay or with_jitter(delay, job.id, step)
end

-- Send the job to its next delivery after `delay` ms (nil for the current step of its own or the default ladder), or to the
-- dead letters. `rest`: see `move`.
local function give_back(job, delay, rest, default)
  if time_over(job) then return die(job, CAUSE_TTL, 'ttl', rest) end
  if job.tries > 0 and job.attempts >= job.tries then
    -- If the last try ended with its lease, that cause stays: it shows the reason for the death without rewriting the record.
    return die(job, job.cause == CAUSE_LEASE and CAUSE_LEASE or CAUSE_TRIES, 'tries', rest)
  end
  delay = delay or ladder_delay(job, default)
  if delay > 0 then return move(job, delayed, from_ms + delay, rest) end
  move(job, ready, nil, rest)
end
