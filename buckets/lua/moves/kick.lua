#!lua flags=allow-oom
-- Make dead letters ready again, due now, with their tries and ladder reset.
-- arrows: dead -> ready
-- returns: a list: for each job `ready`
-- fails: for a job, in its place in the list: NOT_FOUND [state], WRONG_STATE state
-- repeat: no
-- include: clock indexes planned_writes record moves within
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local by = ARGV[2]  -- string: the instance and any actor, recorded in events
local topic = ARGV[3]  -- string: the topic in whose index the jobs were found, or empty for jobs that the caller named
local within = ARGV[4]  -- string: the topics that the caller may access (see within.lua), or empty for any
local ids = {unpack(ARGV, 5)}  -- strings: the ids of the jobs, without duplicates

local function kick(id)
  local job = read_job(id)
  if topic ~= '' and not (job and job.state == dead and job.topic == topic) then
    table.insert(under(plan.unbury, topic), id)  -- the record is the truth: an entry that it does not confirm is removed
    return redis.error_reply('NOT_FOUND ')
  end
  if not job or not reaches(job) then return redis.error_reply('NOT_FOUND ') end
  local word = WORDS[job.state]
  if job.state == deleted then return redis.error_reply('NOT_FOUND ' .. word) end
  if job.state ~= dead then return redis.error_reply('WRONG_STATE ' .. word) end
  job.attempts, job.step, job.cause, job.due = 0, 0, 0, now_ms
  move(job, ready)
  return WORDS[job.state]
end

local results = {}
for _, id in ipairs(ids) do results[#results + 1] = kick(id) end
commit(VERB_KICK)
return results
