#!lua flags=no-writes
-- Look at delayed, reserved or dead jobs, the earliest first over all buckets.
-- arrows: none
-- returns: {more, at, bucket, id, job, record, job, record, …}: 1 when there may be more behind the place (at, bucket,
--   id) that was looked at last; the jobs with their records, or empty ones
-- fails: never
-- repeat: yes
-- include: time record look
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local topic = ARGV[2]  -- string: whose jobs
local state = tonumber(ARGV[3])  -- integer: in which state
local buckets = tonumber(ARGV[4])  -- integer: how many there are
local after_at = ARGV[5]  -- number: begin behind this time, or empty for the beginning
local after_bucket = tonumber(ARGV[6])  -- integer: and in it behind this bucket
local after_id = ARGV[7]  -- string: and in that behind this id
local want = tonumber(ARGV[8])  -- integer: jobs at most
local room = tonumber(ARGV[9])  -- integer: bytes of records at most, one always; empty for the ids alone
-- The order is that of (time, bucket, id), so that a page can begin behind any place, its job still there or not.
local ENTRIES = 320  -- of all buckets together: 1 to 2 ms

local sets = {}
if state == dead then buckets = 1 end
for number = 0, buckets - 1 do sets[number] = state == dead and DEAD .. topic or BUCKET .. number end
local WINDOW = math.ceil(ENTRIES / buckets)

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

-- The entries of all windows in order. Behind the end of a window that is full nobody has looked: the merge ends there.
local function merged()
  local entries, border = {}, {math.huge, math.huge}
  for number, set in pairs(sets) do
    local rank = first_rank(number, set)
    local window = redis.call('ZRANGE', set, rank, rank + WINDOW - 1, 'WITHSCORES')
    for at = 1, #window, 2 do
      entries[#entries + 1] = {tonumber(window[at + 1]), number, at, window[at], window[at + 1]}
    end
    local last = entries[#entries]
    if #window == 2 * WINDOW and (last[1] < border[1] or last[1] == border[1] and number < border[2]) then
      border = {last[1], number}
    end
  end
  table.sort(entries, function(one, other)
    if one[1] ~= other[1] then return one[1] < other[1] end
    if one[2] ~= other[2] then return one[2] < other[2] end
    return one[3] < other[3]
  end)
  return entries, border
end

local answer = {0, after_at, after_bucket, after_id}
local function take(id)
  local job = look(id)
  if not job or job.state ~= state or job.topic ~= topic then return end
  local raw = room and redis.call('GET', JOB .. id) or ''
  want, room = want - 1, room and room - #raw
  answer[#answer + 1] = id
  answer[#answer + 1] = raw
end

local entries, border = merged()
for _, entry in ipairs(entries) do
  local outside = entry[1] > border[1] or entry[1] == border[1] and entry[2] > border[2]
  if want == 0 or (room and room <= 0) or outside then
    answer[1] = 1
    break
  end
  take(entry[4])
  answer[2], answer[3], answer[4] = entry[5], entry[2], entry[4]
end
if border[1] < math.huge then answer[1] = 1 end
return answer
