#!lua flags=allow-oom
-- Delete the first jobs of a ready list, up to one that was made after the purge began.
-- arrows: ready -> deleted
-- returns: {entries, jobs}: entries taken off the list, 0 when the purge of this list is done; jobs deleted
-- fails: never
-- repeat: yes
-- include: time record moves
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local topic = ARGV[2]  -- string: whose jobs
local priority = ARGV[3]  -- integer: of which list
local begun = tonumber(ARGV[4])  -- integer: ms since the epoch; a job made later stays
local page = tonumber(ARGV[5])  -- integer: entries at most
local list = READY .. priority .. ':' .. topic
local taken, purged, seen = 0, 0, {}
for _, entry in ipairs(index('LRANGE', list, 0, page - 1)) do
  local number, id = string.match(entry, '^(%d+):(.+)$')
  local job = id and not seen[id] and read_job(id)
  if job and job.state == ready and job.number == tonumber(number) then
    if job.created > begun then break end
    seen[id] = true
    entomb(job, deleted)
    purged = purged + 1
  end
  taken = taken + 1
end
commit()
if taken > 0 then index('LPOP', list, taken) end
return {taken, purged}
