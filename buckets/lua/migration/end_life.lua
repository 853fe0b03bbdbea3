#!lua flags=allow-oom
-- End lives whose end this Redis has lost, unless another worker now has the job.
-- arrows: delayed -> finished, ready -> finished, reserved -> finished, dead -> finished, delayed -> deleted, ready -> deleted,
--   reserved -> deleted, dead -> deleted
-- returns: a list: for each job `ended`, `reserved` if another worker has it, or `other` if this life no longer exists or has
--   already ended
-- fails: never
-- repeat: yes
-- include: planned_writes record moves
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local by = ARGV[2]  -- string: the instance and any actor, recorded in events
local jobs = {unpack(ARGV, 3)}  -- strings: id, when its life began, its last lease, its state at the end, …; no id twice

-- The end state 0 deletes the job without leaving a tombstone, because another life will follow.
local function end_life(job, created, lease, to)
  if not job or job.created ~= created or (job.state >= finished and to > 0) then return 'other' end
  if job.state == reserved and job.lease ~= lease then return 'reserved' end
  if to == 0 then job.retention = 0 end
  if job.state >= finished then
    plan.gone[#plan.gone + 1] = JOB .. job.id
  else
    entomb(job, to > 0 and to or deleted)
  end
  return 'ended'
end

local results = {}
for at = 1, #jobs, 4 do
  local job = read_job(jobs[at])
  results[#results + 1] = end_life(job, tonumber(jobs[at + 1]), tonumber(jobs[at + 2]), tonumber(jobs[at + 3]))
end
commit(VERB_RESTORE)
return results
