#!lua flags=allow-oom
-- Delete jobs in any live state, except for the states to spare.
-- arrows: delayed -> deleted, ready -> deleted, reserved -> deleted, dead -> deleted
-- returns: a list: for each job the state that it was in
-- fails: for a job, in its place in the list: NOT_FOUND, RESERVED reserved, WRONG_STATE state
-- repeat: yes
-- include: planned_writes record delete_job within
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local by = ARGV[2]  -- string: the instance and any actor, recorded in events
local within = ARGV[3]  -- string: the topics that the caller may access (see within.lua), or empty for any
local spares = ARGV[4]  -- string: the numbers of the states to spare, a digit each
local ids = {unpack(ARGV, 5)}  -- strings: the ids of the jobs, without duplicates

local function delete(job)
  if not job or not reaches(job) then return redis.error_reply('NOT_FOUND ') end
  if string.find(spares, job.state, 1, true) then
    return redis.error_reply((job.state == reserved and 'RESERVED ' or 'WRONG_STATE ') .. WORDS[job.state])
  end
  return delete_job(job)
end

local results = {}
for _, id in ipairs(ids) do results[#results + 1] = delete(read_job(id)) end
commit(VERB_DELETE)
return results
