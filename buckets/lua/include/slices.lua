-- include: indexes
-- Slices hold delayed jobs that are due far ahead: sorted sets so small that Redis keeps each of them in one piece of memory,
-- which takes a third of what the set of a bucket takes for a job. A slice is named by its bound: the first time and id that it
-- may hold, in the order of sorted sets. It may hold whatever comes before the bound of the next slice of its bucket, like a leaf
-- of a B+ tree. The sorted set SLICE .. bucket has the bounds. Jobs enter the set of their bucket; timers/slice.lua moves many
-- at once into slices, and moves/due.lua moves slices back in time. Each write here leaves at most one entry too many if the
-- next one fails.
local SLICE_ENTRIES = 128  -- with more, Redis would not keep a slice in one piece

local function bound_of(at, id) return string.format('%015d', at) .. id end

-- Whether a member of SLICE .. bucket can be a bound.
local function is_bound(text) return string.find(text, '^%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d') ~= nil end

-- The bound of the slice that would hold an entry, or nil. Only reads, and takes what another program wrote for none.
local function slice_of(slices, at, id)
  local found = redis.pcall('ZRANGE', slices, '[' .. bound_of(at, id), '-', 'BYLEX', 'REV', 'LIMIT', '0', '1')
  return not found.err and found[1] and is_bound(found[1]) and found[1] or nil
end

-- The key of the slice that has an entry with this time, and its bound; or nil. Only reads.
local function find_in_slices(bucket, at, id)
  local slices = SLICE .. bucket
  local bound = slice_of(slices, at, id)
  local key = bound and slices .. ':' .. bound
  local score = key and redis.pcall('ZSCORE', key, id)
  if type(score) == 'string' and tonumber(score) == at then return key, bound end
end

-- Remove an entry with this time from the slices of a bucket, if they have it.
local function remove_from_slices(bucket, at, id)
  local key, bound = find_in_slices(bucket, at, id)
  if not key then return end
  index('ZREM', key, id)
  if redis.call('EXISTS', key) == 0 then index('ZREM', SLICE .. bucket, bound) end
end
