#!lua flags=allow-oom
-- Reserve ready jobs of any of the topics, higher priorities first, and equal priorities in the order of the topics.
-- arrows: ready -> reserved, ready -> finished
-- returns: as pop.lua; if as many jobs as wanted were found, the last topic searched is that of the last job
-- fails: never
-- repeat: no
-- include: pauses search
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
local topics = {unpack(ARGV, 9)}  -- strings: in the order of preference among equal priorities

local open = {}
for _, topic in ipairs(topics) do
  if not paused(topic) then open[#open + 1] = topic end
end
search(open)
end_search()
answer[3] = opens
return answer
