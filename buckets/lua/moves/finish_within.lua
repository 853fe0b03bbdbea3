#!lua flags=allow-oom
-- Finish a job of certain topics; or settle it: delete it if it was never delivered.
-- arrows: reserved -> finished, delayed -> finished, ready -> finished, dead -> finished, delayed -> deleted, ready -> deleted,
--   dead -> deleted
-- returns: `finished`, or `deleted`
-- fails: NOT_FOUND [state], NOT_RESERVED state, STALE_LEASE state
-- repeat: yes
-- include: planned_writes record finish_job delete_job within
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local id = ARGV[2]  -- string: the job
local lease = ARGV[3]  -- integer: of the caller's delivery, or empty
local within = ARGV[4]  -- string: the topic that the job is in, or how it begins and a `*`; empty: any
local settles = ARGV[5]  -- integer: 1 to delete a job that was never delivered, or 0

local function end_job(job)
  if job and settles == '1' and (job.state == deleted or job.deliveries == 0) then
    delete_job(job)
    return 'deleted'
  end
  return finish_job(job, lease)
end

local job = read_job(id)
local result = end_job(job and reaches(job) and job)
commit()
return result
