-- Returns nil if a job is pending (delayed or ready, so that no worker has it yet), otherwise an error reply that says why
-- not.
local function not_pending(job)
  if not job then return redis.error_reply('NOT_FOUND ') end
  local word = WORDS[job.state]
  if job.state == deleted then return redis.error_reply('NOT_FOUND ' .. word) end
  if job.state == reserved then return redis.error_reply('RESERVED ' .. word) end
  if job.state ~= delayed and job.state ~= ready then return redis.error_reply('WRONG_STATE ' .. word) end
end
