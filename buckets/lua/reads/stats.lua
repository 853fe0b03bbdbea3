#!lua flags=no-writes
-- Read the figures of topics: their counts, since when the oldest ready job has waited, and the histogram of due times.
-- arrows: none
-- returns: {now in ms, row, …}: a row for each topic, or one for all of them; a row is {since when the oldest ready job has been
--   ready or 0, {field, count, …}, {bin, count, …}, {topic, …}}: the topics whose histograms are too large to be read here; in
--   the place of a row false, where another program's data are under the topic's key
-- fails: never
-- repeat: yes
-- include: clock indexes peek_job
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local sum = ARGV[2] == '1'  -- whether the topics are added up
local whole_bins = tonumber(ARGV[3])  -- integer: bins of a histogram that is read here, at most; -1: none is
local topics = {unpack(ARGV, 4)}  -- strings: which

-- Most topics have only jobs of the default priority.
local priorities = {4, 9, 8, 7, 6, 5, 3, 2, 1, 0}

-- Since when an entry's job has been ready, or nil for a stale entry.
local function since(topic, entry)
  local number, id = string.match(entry, '^(%d+):(.+)$')
  local job = id and peek_job(id, ready, topic)
  return job and job.number == tonumber(number) and job.next or nil
end

-- So few ready jobs are looked at one by one until all were found: that takes less than a look into each list.
local FEW = 4

local function oldest_in(topic, number_ready)
  local oldest, found = 0, 0
  for _, priority in ipairs(priorities) do
    -- A few entries are enough: those that a pop would meet first. Behind many stale ones the age is unknown.
    for _, entry in ipairs(redis.pcall('LRANGE', READY .. priority .. ':' .. topic, 0, 19)) do
      local at = since(topic, entry)
      if at then
        oldest = oldest == 0 and at or math.min(oldest, at)
        found = found + 1
        if found == number_ready then return oldest end
        if number_ready > FEW then break end  -- the first of a list is its oldest, unless an unpop put it there
      end
    end
  end
  return oldest
end

-- How many jobs of a topic are ready; 0 for another program's counter.
local function ready_in(counts)
  for at = 1, #counts, 2 do
    if counts[at] == 'ready' then return tonumber(counts[at + 1]) or 0 end
  end
  return 0
end

local function read(topic)
  local counts = redis.pcall('HGETALL', COUNTS .. topic)
  if counts.err and not sum then return false end
  if counts.err then counts = {} end  -- a key of another program: the next move replaces it
  local bins, large = {}, {}
  local size = whole_bins < 0 and 0 or redis.pcall('HLEN', DUE .. topic)
  if type(size) == 'number' and size > whole_bins then large[1] = topic
  elseif type(size) == 'number' and size > 0 then bins = redis.call('HGETALL', DUE .. topic) end
  local number_ready = ready_in(counts)
  return {number_ready ~= 0 and oldest_in(topic, number_ready) or 0, counts, bins, large}
end

-- Another program's numbers count as none, until `fsck` puts them right.
local function add(sums, flat)
  for at = 1, #flat, 2 do
    local number = string.match(flat[at + 1], '^%-?%d+$')
    sums[flat[at]] = (sums[flat[at]] or 0) + (tonumber(number) or 0)
  end
end

local function flat_of(sums)
  local flat = {}
  for name, number in pairs(sums) do flat[#flat + 1], flat[#flat + 2] = name, whole(number) end
  return flat
end

local reply = {now_ms}
if not sum then
  for _, topic in ipairs(topics) do reply[#reply + 1] = read(topic) end
  return reply
end
local oldest, counts, bins, large = 0, {}, {}, {}
for _, topic in ipairs(topics) do
  local row = read(topic)
  if row[1] > 0 then oldest = oldest == 0 and row[1] or math.min(oldest, row[1]) end
  add(counts, row[2])
  add(bins, row[3])
  large[#large + 1] = row[4][1]
end
return {now_ms, {oldest, flat_of(counts), flat_of(bins), large}}
