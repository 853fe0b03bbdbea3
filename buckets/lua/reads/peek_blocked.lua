#!lua flags=no-writes
-- Look at the ready jobs of a topic that wait for their keys: one key after the other, each in the order of its jobs.
-- arrows: none
-- returns: {more, looked, place, entry, job, record, job, record, …}: as peek_ready.lua, with 0 as the place
-- fails: never
-- repeat: yes
-- include: peek_job key_order
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local topic = ARGV[2]  -- string: the topic of the jobs
local entry = ARGV[3]  -- string: begin after this entry, or empty for the beginning
local want = tonumber(ARGV[4])  -- integer: jobs at most
local room = tonumber(ARGV[5])  -- integer: bytes of records at most, but always one record; empty for records without bodies
local prefix = ARGV[6]  -- string: only jobs whose ids begin with this
local WINDOW = 80  -- entries looked at, as in peek_ready.lua
local first = entry == '' and '-' or '(' .. entry
local found = redis.pcall('ZRANGEBYLEX', BLOCKED .. topic, first, '+', 'LIMIT', '0', WINDOW)
if found.err then found = {} end  -- another program's key
local answer = {#found == WINDOW and 1 or 0, 0, 0, entry}
for at, each in ipairs(found) do
  if want == 0 or (room and room <= 0) then
    answer[1] = 1
    break
  end
  local id, job, raw = id_of(each), nil, nil
  if id and string.sub(id, 1, #prefix) == prefix then job, raw = peek_job(id, ready, topic) end
  if is_blocked_as(job, topic, each) then
    raw = room and redis.call('GET', JOB .. id) or raw
    want, room = want - 1, room and room - #raw
    answer[#answer + 1] = id
    answer[#answer + 1] = raw
  end
  answer[2], answer[4] = at, each
end
return answer
