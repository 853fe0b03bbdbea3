-- include: record
-- A job that no worker has yet: delayed or ready. Without such a job the third value is an error reply.
local function read_pending(id, whole)
  local job, raw = read_job(id, whole)
  if not job then return nil, nil, redis.error_reply('NOT_FOUND ') end
  local word = WORDS[job.state]
  if job.state == deleted then return nil, nil, redis.error_reply('NOT_FOUND ' .. word) end
  if job.state == reserved then return nil, nil, redis.error_reply('RESERVED ' .. word) end
  if job.state ~= delayed and job.state ~= ready then return nil, nil, redis.error_reply('WRONG_STATE ' .. word) end
  return job, raw
end
