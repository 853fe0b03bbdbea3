#!lua flags=no-writes
-- Look at the jobs of a ready list, in the order in which pops get them.
-- arrows: none
-- returns: {more, looked, place, entry, job, record, job, record, …}: 1 if there may be more after the entry that was looked
--   at last, and its place; how many entries were looked at; the jobs with their records
-- fails: never
-- repeat: yes
-- include: peek_job
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local topic = ARGV[2]  -- string: the topic of the jobs
local priority = ARGV[3]  -- integer: the priority of the list
local place = tonumber(ARGV[4])  -- integer: begin after the entry that was at this place
local entry = ARGV[5]  -- string: that entry, or empty to begin at the front
local want = tonumber(ARGV[6])  -- integer: jobs at most
local room = tonumber(ARGV[7])  -- integer: bytes of records at most, but always one record; empty for records without bodies
local prefix = ARGV[8]  -- string: only jobs whose ids begin with this
local WINDOW = 80  -- entries looked at
local SEARCHED, SHIFTED = 3000, 150  -- entries searched for `entry`; how far it may have moved back
local list = READY .. priority .. ':' .. topic
if redis.call('TYPE', list).ok ~= 'list' then return {0, 0, place, entry} end  -- empty, or not a list of ours

-- Since the last page, pops may have moved the entry towards the front, or popped it and all entries before it. (Jobs
-- returned to the front may have moved it back: then some are seen again.) The second value is true if the search must
-- continue.
local function first_place()
  if entry == '' then return 0 end
  local last = math.min(place, redis.call('LLEN', list)) + SHIFTED
  local first = math.max(last - SEARCHED, 0)
  local found = redis.call('LRANGE', list, first, last)
  for at = #found, 1, -1 do
    if found[at] == entry then return first + at end
  end
  return first, first > 0
end

-- The id and the record of an entry's job, or nil for a stale entry.
local function record_of(found)
  local number, id = string.match(found, '^(%d+):(.+)$')
  local job, raw
  if id and string.sub(id, 1, #prefix) == prefix then job, raw = peek_job(id, ready, topic) end
  if not job or job.number ~= tonumber(number) then return nil end
  return id, room and redis.call('GET', JOB .. id) or raw
end

local first, further = first_place()
if further then return {1, 0, first, entry} end
local found = redis.call('LRANGE', list, first, first + WINDOW - 1)
local answer = {#found == WINDOW and 1 or 0, 0, place, entry}
for at, each in ipairs(found) do
  if want == 0 or (room and room <= 0) then
    answer[1] = 1
    break
  end
  local id, raw = record_of(each)
  if id then
    want, room = want - 1, room and room - #raw
    answer[#answer + 1] = id
    answer[#answer + 1] = raw
  end
  answer[2], answer[3], answer[4] = at, first + at - 1, each
end
return answer
