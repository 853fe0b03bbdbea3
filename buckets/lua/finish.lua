#!lua flags=allow-oom
-- The jobs are done.
-- arrows: reserved -> finished, delayed -> finished, ready -> finished, dead -> finished
-- returns: a list, for each job `finished`
-- fails: for a job, in its place in the list: NOT_FOUND [state], NOT_RESERVED state, STALE_LEASE state
-- repeat: yes
-- include: time record moves
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local jobs = {unpack(ARGV, 2)}  -- strings: id, lease or empty, … No id twice.

local function finish(id, lease)
  local job = read_job(id)
  if not job then return redis.error_reply('NOT_FOUND ') end
  local word = WORDS[job.state]
  if job.state == finished then return word end
  if job.state == deleted then return redis.error_reply('NOT_FOUND ' .. word) end
  -- A late worker's finish holds: the job was done, even if its lease ran out. One that nobody ever had was not.
  if job.deliveries == 0 then return redis.error_reply('NOT_RESERVED ' .. word) end
  if lease ~= '' and tonumber(lease) ~= job.lease then return redis.error_reply('STALE_LEASE ' .. word) end
  entomb(job, finished)
  return 'finished'
end

local results = {}
for at = 1, #jobs, 2 do results[#results + 1] = finish(jobs[at], jobs[at + 1]) end
commit()
return results
