#!lua flags=no-writes
-- Look at delayed, reserved or dead jobs across all buckets, the earliest or the latest first.
-- arrows: none
-- returns: {more, looked, at, bucket, id, job, record, job, record, …}: 1 if there may be more after the position (at,
--   bucket, id) that was looked at last; how many entries were looked at; the jobs with their records
-- fails: never
-- repeat: yes
-- include: peek_job
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local topic = ARGV[2]  -- string: the topic of the jobs
local state = tonumber(ARGV[3])  -- integer: the state of the jobs
local buckets = tonumber(ARGV[4])  -- integer: the number of buckets
local after_at = ARGV[5]  -- string: begin after this time, or empty for the beginning
local after_bucket = tonumber(ARGV[6])  -- integer: within that time, begin after this bucket
local after_id = ARGV[7]  -- string: within that bucket, begin after this id
local want = tonumber(ARGV[8])  -- integer: jobs at most
local room = tonumber(ARGV[9])  -- integer: bytes of records at most, but always one record; empty for records without bodies
local prefix = ARGV[10]  -- string: only jobs whose ids begin with this
local back = ARGV[11] == '1'  -- string: 1 for the latest first: "after" the position then means before it

-- Several sorted sets are read as one, in the order of (time, bucket, id), so that reading can begin after any position,
-- whether its job still exists or not.
local LOOKED = 80  -- entries that a script looks at: about 0.6 ms, during which pops wait
local WINDOW = math.ceil(LOOKED / buckets)  -- entries read from a bucket at a time

-- Redis orders members by their bytes; Lua's own comparison would follow the locale.
local function behind(first, second)
  for at = 1, math.min(#first, #second) do
    local one, other = string.byte(first, at), string.byte(second, at)
    if one ~= other then return one > other end
  end
  return #first > #second
end

-- How many entries of a set are before the position; an entry at the position counts, unless the latest come first.
local function before(number, set)
  if after_at == '' then return back and redis.call('ZCARD', set) or 0 end
  local low = redis.call('ZCOUNT', set, '-inf', '(' .. after_at)
  if number > after_bucket then return low end
  local high = redis.call('ZCOUNT', set, '-inf', after_at)
  if number < after_bucket then return high end
  while low < high do
    local middle = math.floor((low + high) / 2)
    local id = redis.call('ZRANGE', set, middle, middle)[1]
    if behind(id, after_id) or (back and id == after_id) then high = middle else low = middle + 1 end
  end
  return low
end

-- The rank of a set's first entry after the position.
local function first_rank(number, set)
  return back and redis.call('ZCARD', set) - before(number, set) or before(number, set)
end

-- Read the next window of a source: a set with the entries last read from it, of which the one at `at` is looked at next.
local function fill(source)
  local read = back and 'ZREVRANGE' or 'ZRANGE'
  source.window = redis.call(read, source.set, source.rank, source.rank + WINDOW - 1, 'WITHSCORES')
  source.rank, source.at = source.rank + WINDOW, 1
  source.time = tonumber(source.window[2])
end

-- A key that another program has turned into anything other than a sorted set counts as empty.
local function open_source(number, set)
  if redis.call('TYPE', set).ok ~= 'zset' then return {number = number} end
  local source = {number = number, set = set, rank = first_rank(number, set)}
  fill(source)
  return source
end

-- Whether an entry of a later set comes before one of an earlier set.
local function comes_first(time, other)
  if back then return time >= other end
  return time < other
end

-- The next entry in the order of all sets: its source, id and time; nil at the end.
local function next_entry(sources)
  local first
  for _, source in ipairs(sources) do
    if source.time and (not first or comes_first(source.time, first.time)) then first = source end
  end
  if not first then return nil end
  return first, first.window[first.at], first.window[first.at + 1]
end

local function step(source)
  source.at = source.at + 2
  source.time = tonumber(source.window[source.at + 1])
  if not source.time and #source.window == 2 * WINDOW then fill(source) end
end

local sources = {}
for number = 0, state == dead and 0 or buckets - 1 do
  sources[number + 1] = open_source(number, state == dead and DEAD .. topic or BUCKET .. number)
end

local answer = {0, 0, after_at, after_bucket, after_id}
local function collect(id)
  local job, raw
  if string.sub(id, 1, #prefix) == prefix then job, raw = peek_job(id, state, topic) end
  if not job then return end
  if room then
    raw = redis.call('GET', JOB .. id)
    room = room - #raw
  end
  want = want - 1
  answer[#answer + 1] = id
  answer[#answer + 1] = raw
end

local looked = 0
local source, id, time = next_entry(sources)
while source and looked < LOOKED and want > 0 and not (room and room <= 0) do
  collect(id)
  answer[3], answer[4], answer[5] = time, source.number, id
  looked = looked + 1
  step(source)
  source, id, time = next_entry(sources)
end
answer[1], answer[2] = source and 1 or 0, looked
return answer
