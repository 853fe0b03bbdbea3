#!lua flags=allow-oom
-- Delete the first jobs of a ready list; those that were created after the purge began keep their places.
-- arrows: ready -> deleted
-- returns: {entries, jobs}: entries taken off the list, 0 if there was nothing to delete; jobs deleted
-- fails: never
-- repeat: yes
-- include: indexes planned_writes record moves
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local by = ARGV[2]  -- string: the instance and any actor, recorded in events
local topic = ARGV[3]  -- string: the topic of the jobs
local priority = ARGV[4]  -- integer: the priority of the list
local begun = tonumber(ARGV[5])  -- integer: ms since the epoch; a job created later stays
local page = tonumber(ARGV[6])  -- integer: entries at most
local list = READY .. priority .. ':' .. topic
local entries = index('LRANGE', list, 0, page - 1)
local kept, purged, seen = {}, 0, {}
for _, entry in ipairs(entries) do
  local number, id = string.match(entry, '^(%d+):(.+)$')
  local job = id and not seen[id] and read_job(id)
  if job and job.state == ready and job.number == tonumber(number) then
    seen[id] = true
    if job.created > begun then
      table.insert(kept, 1, entry)  -- a job that was returned to the front may precede older ones
    else
      job.keeps_body = nil  -- the purge must free memory
      entomb(job, deleted)
      purged = purged + 1
    end
  end
end
commit(VERB_PURGE)
local taken = #entries - #kept
if taken > 0 then
  index('LPOP', list, #entries)
  if #kept > 0 then index('LPUSH', list, unpack(kept)) end
end
return {taken, purged}
