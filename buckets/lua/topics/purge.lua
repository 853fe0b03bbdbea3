#!lua flags=allow-oom
-- Delete those of the given jobs that still have the given topic and state and were created before the purge began.
-- arrows: delayed -> deleted, reserved -> deleted, dead -> deleted
-- returns: how many jobs were deleted
-- fails: never
-- repeat: yes
-- include: planned_writes record moves
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local by = ARGV[2]  -- string: the instance and any actor, recorded in events
local topic = ARGV[3]  -- string: the topic of the jobs
local state = tonumber(ARGV[4])  -- integer: the state of the jobs
local begun = tonumber(ARGV[5])  -- integer: ms since the epoch; a job created later stays
local ids = {unpack(ARGV, 6)}  -- strings: the ids of the jobs, without duplicates
local purged = 0
for _, id in ipairs(ids) do
  local job = read_job(id)
  if job and job.state == state and job.topic == topic and job.created <= begun then
    job.keeps_body = nil  -- the purge must free memory
    entomb(job, deleted)
    purged = purged + 1
  end
end
commit(VERB_PURGE)
return purged
