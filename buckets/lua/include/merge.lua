-- Reading several sorted sets as one, in the order of (time, bucket, id), so that it can begin behind any place (after_at,
-- after_bucket, after_id), whether its job is still there or not.
local LOOKED = 80  -- entries that a script looks at: about 0.6 ms; pops wait behind it
local WINDOW = math.ceil(LOOKED / buckets)  -- entries read of a bucket at a time

-- Redis orders members by their bytes; Lua's own comparison would ask the locale.
local function behind(first, second)
  for at = 1, math.min(#first, #second) do
    local one, other = string.byte(first, at), string.byte(second, at)
    if one ~= other then return one > other end
  end
  return #first > #second
end

-- The rank of a set's first entry behind the place.
local function first_rank(number, set)
  if after_at == '' then return 0 end
  local low = redis.call('ZCOUNT', set, '-inf', '(' .. after_at)
  if number > after_bucket then return low end
  local high = redis.call('ZCOUNT', set, '-inf', after_at)
  if number < after_bucket then return high end
  while low < high do
    local middle = math.floor((low + high) / 2)
    if behind(redis.call('ZRANGE', set, middle, middle)[1], after_id) then high = middle else low = middle + 1 end
  end
  return low
end

-- The sets, each with a window of entries of which the first is looked at next.
local function fill(source)
  source.window = redis.call('ZRANGE', source.set, source.rank, source.rank + WINDOW - 1, 'WITHSCORES')
  source.rank, source.at = source.rank + WINDOW, 1
  source.time = tonumber(source.window[2])
end

-- One of another type than a sorted set, that another program made, counts as empty.
local function open_source(number, set)
  if redis.call('TYPE', set).ok ~= 'zset' then return {number = number} end
  local source = {number = number, set = set, rank = first_rank(number, set)}
  fill(source)
  return source
end

-- The next entry in the order of all sets: its source, id and time; nil at the end.
local function next_entry(sources)
  local first
  for _, source in ipairs(sources) do
    if source.time and (not first or source.time < first.time) then first = source end
  end
  if not first then return nil end
  return first, first.window[first.at], first.window[first.at + 1]
end

local function step(source)
  source.at = source.at + 2
  source.time = tonumber(source.window[source.at + 1])
  if not source.time and #source.window == 2 * WINDOW then fill(source) end
end
