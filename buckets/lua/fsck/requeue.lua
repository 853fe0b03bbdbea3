#!lua flags=allow-oom
-- Enter ready jobs whose entries are lost into their lists again; each stays ready since when it was.
-- arrows: none
-- returns: a list, for each job 1, or 0 if it has moved on meanwhile
-- fails: never
-- repeat: yes
-- include: clock planned_writes record moves append
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local by = ARGV[2]  -- string: who makes the moves, for their events
local entries = {unpack(ARGV, 3)}  -- strings: number:id, as in the record. No id twice.

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
