-- include: clock moves
-- The end of a lease without a finish: it ran out, or its worker gave the job back.
local function time_over(job)
  return job.ttl and job.due + job.ttl <= now_ms
end

-- The delay of the current step of the job's ladder, in ms; moves the job on to the next step.
local function ladder_delay(job)
  local ladder = job.optional and job.optional[TAG_BACKOFF]
  if not ladder then return 0 end
  local delay = struct.unpack('>I6', ladder, 1 + 6 * math.min(job.step, #ladder / 6 - 1))
  job.step = math.min(job.step + 1, 255)
  return delay
end

-- To its next delivery after `delay` ms (nil: the next step of the ladder), or to the dead letters. `rest`: see move.
local function give_back(job, delay, rest)
  if time_over(job) then return die(job, CAUSE_TTL, 'ttl', rest) end
  if job.tries > 0 and job.attempts >= job.tries then return die(job, CAUSE_TRIES, 'tries', rest) end
  delay = delay or ladder_delay(job)
  if delay > 0 then return move(job, delayed, from_ms + delay, rest) end
  move(job, ready, nil, rest)
end
