#!lua flags=allow-oom
-- Reserve ready jobs of any of the topics, higher priorities first, and among equals in the order of the topics.
-- arrows: ready -> reserved, ready -> finished
-- returns: as pop.lua; the last topic searched is the one of the last job where these are as many as wanted
-- fails: never
-- repeat: no
-- include: indexes planned_writes pauses ready_job deliver_job
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local by = ARGV[2]  -- string: who makes the moves, for their events
local bucket = tonumber(ARGV[3])  -- integer: the bucket that holds the leases
local want = tonumber(ARGV[4])  -- integer: jobs at most
local room = tonumber(ARGV[5])  -- integer: bytes of records at most
local always = tonumber(ARGV[6])  -- integer: jobs that are popped whatever their size
local ttr = tonumber(ARGV[7])  -- integer: ms, for these deliveries; empty for each job's own ttr
local workers = ARGV[8]  -- string: as in pop.lua
local topics = {unpack(ARGV, 9)}  -- strings: in the order of preference among equal priorities
local MOST = want + 500  -- entries looked at, as in pop.lua
local ENOUGH = room - 262144  -- room at which it stops, as in pop.lua
local answer, found, looked, full, large = {0, 0, -1}, 0, 0, false, false
local seen, taken, last = {}, {}, nil

-- The worker of the next job.
local worker, served, next_at = '', 0, 1
local function next_worker()
  if found == served then
    local jobs, size = struct.unpack('>HH', workers, next_at)
    worker = string.sub(workers, next_at + 4, next_at + 3 + size)
    served, next_at = served + jobs, next_at + 4 + size
  end
  return worker
end

-- Deliver the job of an entry, if it is valid; `full` if there is no room for it.
local function process(entry)
  local mark, id = string.match(entry, '^([^:]*):(.+)$')
  local raw = id and not seen[id] and redis.pcall('GET', JOB .. id)
  local job = raw and ready_job(mark, id, raw)
  full = job and found >= always and #raw > room
  if full then return end
  looked = looked + 1
  if not job then return end
  local record = deliver_job(job, raw, next_worker())
  found, room, seen[id] = found + 1, room - #raw, true
  answer[2 * found + 2], answer[2 * found + 3] = id, record
  large = room <= ENOUGH
end

local function done() return found >= want or looked >= MOST or full or large end

-- Deliver the jobs of a ready list.
local function search(list)
  local at = 0
  while not done() do
    local entries = index('LRANGE', list, whole(at), whole(at + want - found - 1))
    if #entries == 0 then break end
    for _, entry in ipairs(entries) do
      process(entry)
      if full then break end
      at = at + 1
      if done() then break end
    end
  end
  taken[list] = at
end

-- The topics that are not paused and have ready lists.
local filled = {}
for _, topic in ipairs(topics) do
  if not paused(topic) then
    local lists = {}
    for priority = 0, 9 do lists[priority + 1] = READY .. priority .. ':' .. topic end
    if redis.call('EXISTS', unpack(lists)) > 0 then filled[#filled + 1] = topic end
    last = topic
  end
end
for priority = 9, 0, -1 do
  for _, topic in ipairs(filled) do
    if not done() then
      search(READY .. priority .. ':' .. topic)
      if done() then last = topic end
    end
  end
end
commit(VERB_POP)
for list, n in pairs(taken) do
  if n > 0 then index('LPOP', list, whole(n)) end
end
if last then
  local left = index('HGET', COUNTS .. last, 'ready') or redis.call('EXISTS', COUNTS .. last) - 1
  answer[1] = tonumber(left) or 0
end
answer[2], answer[3] = (large or (found == 0 and looked >= MOST)) and 1 or 0, opens
return answer
