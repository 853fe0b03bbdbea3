#!lua flags=allow-oom
-- Delete jobs of a topic that wait for their keys, except for those that were created after the purge began.
-- arrows: ready -> deleted
-- returns: {entry, jobs}: the last entry looked at, or empty at the end; jobs deleted
-- fails: never
-- repeat: yes
-- include: indexes planned_writes record moves key_order
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local by = ARGV[2]  -- string: the instance and any actor, recorded in events
local topic = ARGV[3]  -- string: the topic of the jobs
local begun = tonumber(ARGV[4])  -- integer: ms since the epoch; a job created later stays
local page = ARGV[5]  -- integer: entries at most
local entry = ARGV[6]  -- string: begin after this entry, or empty for the beginning
local first = entry == '' and '-' or '(' .. entry
local entries = index('ZRANGEBYLEX', BLOCKED .. topic, first, '+', 'LIMIT', '0', page)
local purged = 0
for _, each in ipairs(entries) do
  local id = id_of(each)
  local job = id and read_job(id)
  if is_blocked_as(job, topic, each) and job.created <= begun then
    job.keeps_body = nil  -- the purge must free memory
    entomb(job, deleted)
    purged = purged + 1
  end
end
commit(VERB_PURGE)
return {#entries == tonumber(page) and entries[#entries] or '', purged}
