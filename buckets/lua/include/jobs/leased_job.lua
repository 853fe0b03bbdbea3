-- include: record within
-- Read a job that only its worker may change: the job must be reserved, and `lease`, if not empty, must be its newest lease.
-- Otherwise the third value is an error reply.
local function read_leased(id, lease, whole)
  local job, raw = read_job(id, whole)
  if not job or not reaches(job) then return nil, nil, redis.error_reply('NOT_FOUND ') end
  local word = WORDS[job.state]
  if job.state == deleted then return nil, nil, redis.error_reply('NOT_FOUND ' .. word) end
  if lease ~= '' and job.deliveries > 0 and tonumber(lease) ~= job.lease then
    return nil, nil, redis.error_reply('STALE_LEASE ' .. word)
  end
  if job.state ~= reserved then return nil, nil, redis.error_reply('NOT_RESERVED ' .. word) end
  return job, raw
end
