#!lua flags=allow-oom
-- Remove the entries that no record confirms: from a bucket, a slice, a topic's dead letters or keys, or sets of occurrences.
-- arrows: none
-- returns: a list of the ids, or of the names of schedules
-- fails: never
-- repeat: yes
-- include: orphans indexes planned_writes by_key
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local by = ARGV[2]  -- string: the instance and any actor, recorded in events
local family = ARGV[3]  -- string: b, s, d, kh, kb or o, see orphans.lua
local which = ARGV[4]  -- string: the bucket's number, with the slice's bound, or the topic, or empty
local ids = {unpack(ARGV, 5)}  -- strings: entries of the index, or names of schedules
local found, set = orphans(family, which, ids)
if set and #found > 0 then redis.call('ZREM', set, unpack(found)) end
if family == 'kh' and #found > 0 then  -- the next jobs get their keys
  for _, entry in ipairs(found) do by_key().plan_of(which, string.match(entry, '^[^@]*')).is_doubtful = true end
  commit()
end
if family == 's' then
  local bucket, bound = string.match(which, '^(%d+):(.*)$')
  if bound and redis.call('EXISTS', set) == 0 then index('ZREM', SLICE .. bucket, bound) end
  -- All bounds have the score 0; with another one, the slice is still there.
  for _, each in ipairs(bound and {} or found) do
    if has_slice(set, each) then redis.call('ZADD', set, '0', each) end
  end
end
if not set then
  for _, name in ipairs(found) do redis.call('UNLINK', OCCURRENCES .. name) end
end
return found
