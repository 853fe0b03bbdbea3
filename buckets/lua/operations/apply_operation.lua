#!lua flags=allow-oom
-- Apply an operation to jobs that have not changed since they were read, and store its position in this shard.
-- arrows: dead -> ready, delayed -> ready, delayed -> delayed, delayed -> deleted, ready -> deleted, reserved -> deleted,
--   dead -> deleted
-- returns: {done, skipped}: of all pages of this shard so far; or nothing if another instance has continued from `before`
-- fails: never
-- repeat: no
-- include: clock indexes planned_writes record moves
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local by = ARGV[2]  -- string: the instance and any actor, recorded in events
local operation = ARGV[3]  -- string: its id
local kind = ARGV[4]  -- string: kick, delete, run or reschedule
local before = ARGV[5]  -- string: the position so far, as this script stored it, or empty at the beginning
local after = ARGV[6]  -- string: the position after these jobs
local lasts = ARGV[7]  -- integer: ms for which the position is kept
local jobs = {unpack(ARGV, 8)}  -- strings: id, header as it was read, ms since the epoch when it is due (reschedule), id, …
local VERBS = {kick = VERB_KICK, delete = VERB_DELETE, run = VERB_RUN, reschedule = VERB_UPDATE}
local key = OPERATION .. operation
if (index('HGET', key, 'position') or '') ~= before then return {} end

local acts = {
  kick = function(job)
    job.attempts, job.step, job.cause, job.due = 0, 0, 0, now_ms
    move(job, ready)
  end,
  delete = function(job)
    job.keeps_body = nil  -- the delete must free memory
    entomb(job, deleted)
  end,
  run = function(job)
    job.cause, job.due = 0, now_ms
    move(job, ready)
  end,
  reschedule = function(job, due)
    job.cause, job.due = 0, math.max(due, now_ms)
    move(job, job.due <= now_ms and ready or delayed, job.due)
  end,
}

local done, skipped = 0, 0
for at = 1, #jobs, 3 do
  local job, raw = read_job(jobs[at])
  if job and string.sub(raw, 1, job.header) == jobs[at + 1] then
    acts[kind](job, tonumber(jobs[at + 2]))
    done = done + 1
  else
    skipped = skipped + 1
  end
end
commit(VERBS[kind])
index('HSET', key, 'position', after)
done, skipped = index('HINCRBY', key, 'moved', whole(done)), index('HINCRBY', key, 'changed', whole(skipped))
redis.call('PEXPIRE', key, lasts)
return {done, skipped}
