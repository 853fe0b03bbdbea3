#!lua flags=allow-oom
-- Finish jobs of certain topics; or settle them: delete those that were never delivered.
-- arrows: reserved -> finished, delayed -> finished, ready -> finished, dead -> finished, delayed -> deleted, ready -> deleted,
--   dead -> deleted
-- returns: {{topic, jobs, topic, jobs, …}, finished or deleted, …}: how many jobs of which topics it has finished; for each job
--   its new state
-- fails: for a job, in its place in the list: NOT_FOUND [state], NOT_RESERVED state, STALE_LEASE state
-- repeat: yes
-- include: planned_writes record finish_job delete_job within
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local by = ARGV[2]  -- string: who makes the moves, for their events
local within = ARGV[3]  -- string: the topics that the caller reaches (see within.lua); empty: any
local settles = ARGV[4]  -- integer: 1 to delete jobs that were never delivered, or 0
local jobs = {unpack(ARGV, 5)}  -- strings: id, lease or empty, … No id twice.

local function end_job(job, lease)
  if job and settles == '1' and (job.state == deleted or job.deliveries == 0) then
    delete_job(job)
    return 'deleted'
  end
  return finish_job(job, lease)
end

local numbers = {}
local results = {numbers}
for at = 1, #jobs, 2 do
  local job = read_job(jobs[at])
  results[#results + 1] = end_job(job and reaches(job) and job, jobs[at + 1])
end
finished_by_topic(numbers)
commit(VERB_FINISH)
return results
