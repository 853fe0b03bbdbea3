-- include: moves
-- Finish a job, if there is one; returns `finished`, or an error reply.
local function finish_job(job, lease)
  if not job then return redis.error_reply('NOT_FOUND ') end
  local word = WORDS[job.state]
  if job.state == finished then return word end
  if job.state == deleted then return redis.error_reply('NOT_FOUND ' .. word) end
  -- A late worker's finish counts: the job was done, even if its lease ran out. A job that nobody ever had was not done.
  if job.deliveries == 0 then return redis.error_reply('NOT_RESERVED ' .. word) end
  if lease ~= '' and tonumber(lease) ~= job.lease then return redis.error_reply('STALE_LEASE ' .. word) end
  entomb(job, finished)
  return 'finished'
end
