#!lua flags=allow-oom
-- Move a page of far jobs from the set of their bucket into slices, if the settings say how far ahead (ms) these are due.
-- arrows: none
-- returns: {moved, stayed}: how many entries of the page were moved, and how many stay, because no record of a delayed job
--   confirms them or their ids are long
-- fails: never
-- repeat: yes
-- include: clock indexes slices append
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local bucket = ARGV[2]  -- integer: the bucket
local skip = tonumber(ARGV[3])  -- integer: how many far entries are before the page
local page = tonumber(ARGV[4])  -- integer: entries of the page at most
local SLICE_ID = 64  -- bytes of an id at most: with a longer one, Redis would not keep a slice in one piece
local horizon = tonumber(redis.pcall('HGET', meta, 'slices'))
if not horizon then return {0, 0} end

-- Move the upper half of a slice, or as much as a script may of one that another program wrote, into a slice of its own.
local function split(slices, set)
  local MOST = 1000
  local from = math.max(SLICE_ENTRIES / 2, index('ZCARD', set) - MOST)
  local found = redis.call('ZRANGE', set, from, '-1', 'WITHSCORES')
  local entries, ids = {}, {}
  for at = 1, #found, 2 do
    entries[at], entries[at + 1] = found[at + 1], found[at]
    ids[#ids + 1] = found[at]
  end
  local bound = bound_of(found[2], found[1])
  local key = slices .. ':' .. bound
  index('ZADD', key, unpack(entries))
  index('ZADD', slices, '0', bound)
  index('ZREM', set, unpack(ids))
end

-- Add entries (time, id, time, id, …), the earliest first, to the slices of the bucket. One that is later than all of a full
-- slice begins a new slice, because most jobs are due later than those before them; otherwise the slice is split.
local function add_to_slices(slices, entries)
  local at = 1
  while at < #entries do
    local due, id = tonumber(entries[at]), entries[at + 1]
    local bound = slice_of(slices, due, id) or bound_of(now_ms + horizon, '')
    local key = slices .. ':' .. bound
    local room = SLICE_ENTRIES - index('ZCARD', key)
    if room <= 0 and tonumber(redis.call('ZRANGE', key, '-1', '-1', 'WITHSCORES')[2]) < due then
      bound, room = bound_of(due, ''), SLICE_ENTRIES
      key = slices .. ':' .. bound
    end
    if room <= 0 then
      split(slices, key)
    else
      local after = redis.pcall('ZRANGE', slices, '(' .. bound, '+', 'BYLEX', 'LIMIT', '0', '1')
      local next_bound = not after.err and after[1] and is_bound(after[1]) and string.sub(after[1], 1, 15)
      local high, some = tonumber(next_bound) or math.huge, {}
      repeat  -- the first entry, and those before the time of the next bound
        append(some, entries[at], entries[at + 1])
        at = at + 2
      until at > #entries or #some >= 2 * room or tonumber(entries[at]) >= high
      index('ZADD', slices, '0', bound)
      index('ZADD', key, unpack(some))
    end
  end
end

local set = BUCKET .. bucket
local far = redis.pcall('ZCOUNT', set, '(' .. whole(now_ms + horizon), '+inf')
local count = type(far) == 'number' and far - skip or 0
if count < 1 then return {0, 0} end
local rank = redis.call('ZCARD', set) - count
local found = redis.call('ZRANGE', set, rank, rank + page - 1, 'WITHSCORES')
local entries, ids = {}, {}
for at = 1, #found, 2 do
  local id = found[at]
  local head = #id <= SLICE_ID and redis.pcall('GETRANGE', JOB .. id, '0', whole(SHORT - 1))
  local _, _, flags, _, its_bucket = string.byte(type(head) == 'string' and #head == SHORT and head or '', 1, 5)
  if its_bucket == tonumber(bucket) and flags % 8 == delayed and struct.unpack('>I6', head, 19) == tonumber(found[at + 1]) then
    append(entries, found[at + 1], id)
    ids[#ids + 1] = id
  end
end
if #ids > 0 then
  add_to_slices(SLICE .. bucket, entries)
  index('ZREM', set, unpack(ids))
end
return {#ids, #found / 2 - #ids}
