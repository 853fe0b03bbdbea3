#!lua flags=no-writes
-- Read the figures of topics: their counts, since when the oldest ready job has waited, and the histogram of due times.
-- arrows: none
-- returns: {now in ms, row, …}: a row for each topic, or one for all of them. A row is {since when the oldest ready job has
--   been ready or 0, {field, count, …}, {bin, count, …}, {topic, …}, {ms, …}}, where the topics are those whose histograms
--   are too large to be read here, and the ms are since when the first ready jobs have been ready. A row is false if another
--   program's data is under the topic's key
-- fails: never
-- repeat: yes
-- include: clock indexes
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local sum = ARGV[2] == '1'  -- whether the topics are added up
local whole_bins = tonumber(ARGV[3])  -- integer: the most bins of a histogram that is read here, or -1 to read none
local first = tonumber(ARGV[4])  -- integer: how many of a topic's first ready jobs have their times returned
local topics = {unpack(ARGV, 5)}  -- strings: the topics

-- Since when an entry's job has been ready, or nil for a stale entry. The record is not parsed: there may be many.
local function since(topic, entry)
  local mark, id = string.match(entry, '^(%d+):(.+)$')
  local raw = id and redis.pcall('GETRANGE', JOB .. id, '0', whole(63 + #topic))
  if type(raw) ~= 'string' or #raw < SHORT then return nil end
  local version, length, flags, _, _, size, _, _, next_ms, _, _, number = struct.unpack(HEADER, raw)
  local is_valid = version == VERSION and flags % 8 == ready and number == tonumber(mark)
  return is_valid and string.sub(raw, length + 1, length + size) == topic and next_ms or nil
end

-- Up to this many ready jobs are looked at one by one until all are found, which is cheaper than a look into each list.
local FEW = math.max(4, first)
-- Most topics have only jobs of the default priority.
local USUAL_FIRST, BY_PRIORITY = {4, 9, 8, 7, 6, 5, 3, 2, 1, 0}, {9, 8, 7, 6, 5, 4, 3, 2, 1, 0}

local function oldest_in(topic, number_ready, times)
  local oldest, found = 0, 0
  for _, priority in ipairs(number_ready > FEW and BY_PRIORITY or USUAL_FIRST) do
    -- A few entries are enough: those that a pop would meet first. After many stale ones, the age is unknown.
    for _, entry in ipairs(redis.pcall('LRANGE', READY .. priority .. ':' .. topic, 0, 19)) do
      local at = since(topic, entry)
      if at then
        oldest = oldest == 0 and at or math.min(oldest, at)
        found = found + 1
        if #times < first then times[#times + 1] = at end
        if found == number_ready then return oldest end
        -- The first job of a list is its oldest, unless an unpop put it there.
        if number_ready > FEW and #times == first then break end
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
  if counts.err then counts = {} end  -- another program's key: the next move replaces it
  local bins, large = {}, {}
  local size = whole_bins < 0 and 0 or redis.pcall('HLEN', DUE .. topic)
  if type(size) == 'number' and size > 0 then
    if size > whole_bins then large[1] = topic else bins = redis.call('HGETALL', DUE .. topic) end
  end
  local number_ready = ready_in(counts)
  local times = {}
  return {number_ready ~= 0 and oldest_in(topic, number_ready, times) or 0, counts, bins, large, times}
end

-- Another program's values count as 0, until `fsck` corrects them.
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
local oldest, counts, bins, large, times = 0, {}, {}, {}, {}
for _, topic in ipairs(topics) do
  local row = read(topic)
  if row[1] > 0 then oldest = oldest == 0 and row[1] or math.min(oldest, row[1]) end
  add(counts, row[2])
  add(bins, row[3])
  large[#large + 1] = row[4][1]
  for _, at in ipairs(row[5]) do times[#times + 1] = at end
end
return {now_ms, {oldest, flat_of(counts), flat_of(bins), large, times}}
