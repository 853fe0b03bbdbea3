-- include: moves planned_writes
-- Finish a job, if it exists; returns `finished`, or an error reply.
local function finish_job(job, lease)
  if not job then return redis.error_reply('NOT_FOUND ') end
  local word = WORDS[job.state]
  if job.state == finished then return word end
  if job.state == deleted then return redis.error_reply('NOT_FOUND ' .. word) end
  -- A late worker's finish counts: the job was done, even if its lease ran out. A job that was never delivered was not done.
  if job.deliveries == 0 then return redis.error_reply('NOT_RESERVED ' .. word) end
  if lease ~= '' and tonumber(lease) ~= job.lease then return redis.error_reply('STALE_LEASE ' .. word) end
  entomb(job, finished)
  return 'finished'
end

-- Append how many jobs of each topic the plan finishes: topic, jobs, topic, jobs, …
local function finished_by_topic(numbers)
  for topic, counts in pairs(plan.counts) do
    if counts.finished then
      numbers[#numbers + 1], numbers[#numbers + 2] = topic, counts.finished
    end
  end
end
