#!lua flags=allow-oom
-- Put ready jobs whose entries are lost back into their lists; each keeps the time since which it has been ready.
-- arrows: none
-- returns: a list: for each job 1, or 0 if the job has moved in the meantime
-- fails: never
-- repeat: yes
-- include: clock planned_writes record moves append
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local by = ARGV[2]  -- string: the instance and any actor, recorded in events
local entries = {unpack(ARGV, 3)}  -- strings: number:id, as in the records, without duplicate ids

local function requeue(entry)
  local number, id = string.match(entry, '^(%d+):(.+)$')
  local job = read_job(id)
  if not job or job.state ~= ready or job.number ~= tonumber(number) then return 0 end
  local since = math.min(job.next, now_ms)
  leave(job)
  enter(job)
  job.next = since
  append(plan.headers, JOB .. id, header(job))
  tell(job)
  return 1
end

local results = {}
for place, entry in ipairs(entries) do results[place] = requeue(entry) end
commit(VERB_MEND)
return results
