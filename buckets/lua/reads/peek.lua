#!lua flags=no-writes
-- Look at delayed, reserved or dead jobs across all buckets, the earliest or the latest first.
-- arrows: none
-- returns: {more, looked, at, bucket, id, job, record, job, record, …}: 1 if there may be more after the position (at,
--   bucket, id) that was looked at last; how many entries were looked at; the jobs with their records
-- fails: never
-- repeat: yes
-- include: peek_job slices
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
-- whether its job still exists or not, and whether it still waits in a slice or in the set of its bucket.
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

-- A key that another program has turned into anything other than a sorted set counts as empty.
local function is_set(key) return redis.call('TYPE', key).ok == 'zset' end

-- Go on to the next slice of a source, if it is one of slices; returns whether there is one.
local function next_slice(source)
  if not source.slices then return false end
  local after = '(' .. source.bound
  local found = back and redis.call('ZRANGE', source.slices, after, '-', 'BYLEX', 'REV', 'LIMIT', 0, 1)
    or redis.call('ZRANGE', source.slices, after, '+', 'BYLEX', 'LIMIT', 0, 1)
  local bound = found[1]
  if not bound then return false end
  source.bound, source.set, source.rank = bound, source.slices .. ':' .. bound, 0
  return is_set(source.set) or next_slice(source)
end

-- Read the next window of a source: a set with the entries last read from it, of which the one at `at` is looked at next.
local function fill(source)
  local read = back and 'ZREVRANGE' or 'ZRANGE'
  repeat
    source.window = redis.call(read, source.set, source.rank, source.rank + WINDOW - 1, 'WITHSCORES')
    source.rank, source.at = source.rank + WINDOW, 1
  until #source.window > 0 or not next_slice(source)
  source.time = tonumber(source.window[2])
end

local function open_source(number, set)
  if not is_set(set) then return {number = number} end
  local source = {number = number, set = set, rank = first_rank(number, set)}
  fill(source)
  return source
end

-- The bound of the slice that holds the position, or the first one (from the end if the latest come first); nil if none is
-- left.
local function first_bound(number, slices)
  local ends = redis.call('ZRANGE', slices, back and -1 or 0, back and -1 or 0)[1]
  if after_at == '' then return ends end
  local at = tonumber(after_at)
  local id = number == after_bucket and after_id or ''
  if at % 1 > 0 or number < after_bucket then id = '\255' end  -- after all entries of that millisecond
  local bound = slice_of(slices, math.min(at, 1e15 - 1), id)
  if back then return bound end
  return bound or ends
end

-- The slices of a bucket as a source.
local function open_slices(number)
  local slices = SLICE .. number
  local bound = is_set(slices) and first_bound(number, slices)
  local source = {number = number, slices = slices, bound = bound, set = slices .. ':' .. (bound or '')}
  if not bound then return source end
  if is_set(source.set) then source.rank = first_rank(number, source.set) elseif not next_slice(source) then return source end
  fill(source)
  return source
end

-- Whether the next entry of a source comes before that of an earlier one.
local function comes_first(source, other)
  if source.time ~= other.time then return (source.time < other.time) ~= back end
  if source.number ~= other.number then return back end
  return behind(other.window[other.at], source.window[source.at]) ~= back
end

-- The next entry in the order of all sets: its source, id and time; nil at the end.
local function next_entry(sources)
  local first
  for _, source in ipairs(sources) do
    if source.time and (not first or comes_first(source, first)) then first = source end
  end
  if not first then return nil end
  return first, first.window[first.at], first.window[first.at + 1]
end

local function step(source)
  source.at = source.at + 2
  source.time = tonumber(source.window[source.at + 1])
  if not source.time and (source.slices or #source.window == 2 * WINDOW) then fill(source) end
end

local sources = {}
for number = 0, state == dead and 0 or buckets - 1 do
  sources[#sources + 1] = open_source(number, state == dead and DEAD .. topic or BUCKET .. number)
  if state == delayed then sources[#sources + 1] = open_slices(number) end
end

local answer, seen = {0, 0, after_at, after_bucket, after_id}, {}
local function collect(id)
  local job, raw
  -- An error may have left a job in a slice and in the set of its bucket.
  if string.sub(id, 1, #prefix) == prefix and not seen[id] then job, raw = peek_job(id, state, topic) end
  seen[id] = true
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
