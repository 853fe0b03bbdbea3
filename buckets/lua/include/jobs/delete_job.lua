-- include: moves
-- Delete a job, if it exists; returns the state that it was in, or an error reply.
local function delete_job(job)
  if not job then return redis.error_reply('NOT_FOUND ') end
  local word = WORDS[job.state]
  if job.state == finished then return redis.error_reply('WRONG_STATE ' .. word) end
  if job.state ~= deleted then entomb(job, deleted) end
  return word
end
