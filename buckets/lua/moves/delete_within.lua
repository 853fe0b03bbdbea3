#!lua flags=allow-oom
-- Delete a job of certain topics, unless it is in a state to spare.
-- arrows: delayed -> deleted, ready -> deleted, reserved -> deleted, dead -> deleted
-- returns: the state it was in
-- fails: NOT_FOUND, RESERVED reserved, WRONG_STATE state
-- repeat: yes
-- include: planned_writes record delete_job within
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local id = ARGV[2]  -- string: the job
local within = ARGV[3]  -- string: the topic that the job is in, or how it begins and a `*`; empty: any
local spares = ARGV[4]  -- string: the numbers of the states to spare, a digit each
local job = read_job(id)
if not job or not reaches(job) then return redis.error_reply('NOT_FOUND ') end
if string.find(spares, job.state, 1, true) then
  return redis.error_reply((job.state == reserved and 'RESERVED ' or 'WRONG_STATE ') .. WORDS[job.state])
end
local result = delete_job(job)
commit()
return result
