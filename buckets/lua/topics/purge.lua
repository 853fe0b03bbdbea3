#!lua flags=allow-oom
-- Delete those of the given jobs that are still in a state of a topic and were created before the purge began.
-- arrows: delayed -> deleted, reserved -> deleted, dead -> deleted
-- returns: how many
-- fails: never
-- repeat: yes
-- include: planned_writes record moves
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local by = ARGV[2]  -- string: who makes the moves, for their events
local topic = ARGV[3]  -- string: whose jobs
local state = tonumber(ARGV[4])  -- integer: in which state
local begun = tonumber(ARGV[5])  -- integer: ms since the epoch; a job created later stays
local ids = {unpack(ARGV, 6)}  -- strings: the jobs. No id twice.
local purged = 0
for _, id in ipairs(ids) do
  local job = read_job(id)
  if job and job.state == state and job.topic == topic and job.created <= begun then
    job.keeps_body = nil  -- to free memory is its purpose
    entomb(job, deleted)
    purged = purged + 1
  end
end
commit(VERB_PURGE)
return purged
