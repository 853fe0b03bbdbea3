#!lua flags=allow-oom
-- Undo deliveries that reached nobody: the jobs go to the front of the ready list, as if never popped.
-- arrows: reserved -> ready
-- returns: a list: for each job 1, or 0 if its lease is not the newest and the job stays as it is
-- fails: never
-- repeat: yes
-- include: planned_writes record moves
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local by = ARGV[2]  -- string: the instance and any actor, recorded in events
local leases = {unpack(ARGV, 3)}  -- strings: id, lease, id, lease, …, the last popped first, without duplicate ids
local given = {}
plan.push_with = 'LPUSH'
for at = 1, #leases, 2 do
  local job = read_job(leases[at])
  given[(at + 1) / 2] = 0
  if job and job.state == reserved and job.lease == tonumber(leases[at + 1]) then
    count(job.topic, 'delivered', -1)
    count(job.topic, 'undone', 1)  -- otherwise fsck could not know that the job was away in the meantime
    if job.deliveries > 1 then count(job.topic, 'redelivered', -1) end
    job.attempts, job.deliveries = math.max(job.attempts - 1, 0), math.max(job.deliveries - 1, 0)
    move(job, ready)
    given[(at + 1) / 2] = 1
  end
end
commit(VERB_UNPOP)
return given
