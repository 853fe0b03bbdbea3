#!lua flags=no-writes
-- Count the jobs that are live.
-- arrows: none
-- returns: how many
-- fails: never
-- repeat: yes
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local ids = {unpack(ARGV, 1)}  -- strings: the jobs
local FLAGS, live = 2, 0  -- where a record has its flags
for _, id in ipairs(ids) do
  local flags = redis.pcall('GETRANGE', JOB .. id, FLAGS, FLAGS)
  if type(flags) == 'string' and #flags == 1 and string.byte(flags) % 8 <= dead then live = live + 1 end
end
return live
