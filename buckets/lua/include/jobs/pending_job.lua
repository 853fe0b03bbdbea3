-- Why a job is not one that no worker has yet, delayed or ready: an error reply; nil if it is one.
local function not_pending(job)
  if not job then return redis.error_reply('NOT_FOUND ') end
  local word = WORDS[job.state]
  if job.state == deleted then return redis.error_reply('NOT_FOUND ' .. word) end
  if job.state == reserved then return redis.error_reply('RESERVED ' .. word) end
  if job.state ~= delayed and job.state ~= ready then return redis.error_reply('WRONG_STATE ' .. word) end
end
