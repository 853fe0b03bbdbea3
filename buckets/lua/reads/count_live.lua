#!lua flags=no-writes
-- Count the jobs that are live.
-- arrows: none
-- returns: the number of live jobs
-- fails: never
-- repeat: yes
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local ids = {unpack(ARGV, 1)}  -- strings: the ids of the jobs
local FLAGS, live = 2, 0  -- the offset of the flags in a record
for _, id in ipairs(ids) do
  local flags = redis.pcall('GETRANGE', JOB .. id, FLAGS, FLAGS)
  if type(flags) == 'string' and #flags == 1 and string.byte(flags) % 8 <= dead then live = live + 1 end
end
return live
