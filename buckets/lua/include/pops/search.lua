-- include: indexes planned_writes ready_job deliver_job
-- argument: want room always workers
-- A pop's search of ready lists on the complete path. (The fast path of a pop is only in pop.lua.)
local MOST = want + 500  -- entries looked at, as in pop.lua
local ENOUGH = room - 262144  -- room at which the search stops, as in pop.lua
local answer, found, looked, full, large = {0, 0, -1}, 0, 0, false, false
local met, passed, last_one = {}, {}, nil
local allowed = {}  -- what topics may still deliver, as in limits.lua; a topic without an entry: any number of jobs

-- The worker of the next job.
local worker, supplied, next_at = '', 0, 1
local function next_worker()
  if found == supplied then
    local jobs, size = struct.unpack('>HH', workers, next_at)
    worker = string.sub(workers, next_at + 4, next_at + 3 + size)
    supplied, next_at = supplied + jobs, next_at + 4 + size
  end
  return worker
end

-- Deliver the job of an entry, if it is valid; sets `full` if there is no room for the job.
local function process(entry, limit)
  local mark, id = string.match(entry, '^([^:]*):(.+)$')
  local raw = id and not met[id] and redis.pcall('GET', JOB .. id)
  local job = raw and ready_job(mark, id, raw)
  full = job and found >= always and #raw > room
  if full then return end
  looked = looked + 1
  if not job then return end
  job.holds = limit and limit.holds
  local record = deliver_job(job, raw, next_worker())
  if limit then
    limit.permits = limit.permits - 1
    if job.state == reserved then limit.places = limit.places - 1 end
  end
  found, room, met[id] = found + 1, room - #raw, true
  answer[2 * found + 2], answer[2 * found + 3] = id, record
  large = room <= ENOUGH
end

local function is_spent(limit) return limit and (limit.permits < 1 or limit.places < 1) end
local function done() return found >= want or looked >= MOST or full or large end

-- Deliver the jobs of a ready list.
local function search_list(list, limit)
  local at = 0
  while not done() and not is_spent(limit) do
    local entries = index('LRANGE', list, whole(at), whole(at + want - found - 1))
    if #entries == 0 then break end
    for _, entry in ipairs(entries) do
      process(entry, limit)
      if full then break end
      at = at + 1
      if done() or is_spent(limit) then break end
    end
  end
  passed[list] = at
end

-- Deliver the jobs of topics, higher priorities first, and equal priorities in the order of the topics.
local function search(topics)
  local filled = {}
  for _, topic in ipairs(topics) do
    local lists = {}
    for priority = 0, 9 do lists[priority + 1] = READY .. priority .. ':' .. topic end
    if redis.call('EXISTS', unpack(lists)) > 0 then filled[#filled + 1] = topic end
    last_one = topic
  end
  for priority = 9, 0, -1 do
    for _, topic in ipairs(filled) do
      if not done() then
        search_list(READY .. priority .. ':' .. topic, allowed[topic])
        if done() then last_one = topic end
      end
    end
  end
end

-- Write the deliveries; returns the answer of a pop.
local function end_search()
  commit(VERB_POP)
  for list, n in pairs(passed) do
    if n > 0 then index('LPOP', list, whole(n)) end
  end
  if last_one then
    local left = index('HGET', COUNTS .. last_one, 'ready') or redis.call('EXISTS', COUNTS .. last_one) - 1
    answer[1] = tonumber(left) or 0
  end
  answer[2] = (large or (found == 0 and looked >= MOST)) and 1 or 0
  return answer
end
