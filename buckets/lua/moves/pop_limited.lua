#!lua flags=allow-oom
-- Reserve ready jobs of topics, some of which have limits; a topic that has reached a limit is skipped.
-- arrows: ready -> reserved, ready -> finished
-- returns: as pop.lua, but instead of `opens` a list {opens, topic, limit, us, …}, which adds each topic whose ready jobs a
--   limit holds back: the limit, rate or concurrency, and in how many us to look again
-- fails: never
-- repeat: no
-- include: indexes pauses search limits permits append
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local by = ARGV[2]  -- string: the instance and any actor, recorded in events
local bucket = tonumber(ARGV[3])  -- integer: the bucket that holds the leases
local want = tonumber(ARGV[4])  -- integer: jobs at most
local room = tonumber(ARGV[5])  -- integer: bytes of records at most
local always = tonumber(ARGV[6])  -- integer: jobs to pop regardless of their size
local ttr = tonumber(ARGV[7])  -- integer: ms, for these deliveries; empty for each job's own ttr
local workers = ARGV[8]  -- string: as in pop.lua
local by_priority = ARGV[9]  -- integer: 1 for the order of pop_by_priority.lua, 0 for that of pop.lua
local asked = {unpack(ARGV, 10)}  -- strings: topic, rate, burst, concurrency, … in the order of preference (see limits.lua)
local open, granted = {}, {}
for at = 1, #asked, 4 do
  local topic = asked[at]
  if not paused(topic) then
    open[#open + 1] = topic
    if not allowed[topic] and (asked[at + 1] ~= '' or asked[at + 3] ~= '0') then
      allowed[topic] = limit_of(unpack(asked, at, at + 3))
      granted[topic] = allowed[topic].permits
    end
  end
end
if by_priority == '1' then
  search(open)
else
  for _, topic in ipairs(open) do
    if not done() then search({topic}) end
  end
end
for topic, permits in pairs(granted) do
  local limit = allowed[topic]
  if limit.bucket then take_permits(limit.bucket, permits - limit.permits) end
end
end_search()
local limited = {opens}
for topic, limit in pairs(allowed) do
  local which, opens_in = reached(limit)
  if which and (tonumber(index('HGET', COUNTS .. topic, 'ready')) or 0) > 0 then append(limited, topic, which, opens_in) end
end
answer[3] = limited
return answer
