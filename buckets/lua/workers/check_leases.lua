#!lua flags=no-writes
-- Check which leases still hold: their jobs are reserved, and were not delivered again since.
-- arrows: none
-- returns: a list: for each job 1 or 0
-- fails: never
-- repeat: yes
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local leases = {unpack(ARGV, 1)}  -- strings: id, lease, …
local held, last = {}, string.format('%d', LONG - 1)

-- Read from the bytes of the header, as the fast paths do: an instance may have to check many leases every two seconds.
local function holds(front, lease)
  if type(front) ~= 'string' or #front < LONG then return false end
  local version, length, flags = string.byte(front, 1, 3)
  if version ~= VERSION or length < LONG or flags % 8 ~= reserved then return false end
  return struct.unpack('>I7', front, LONG - 6) == lease
end

for at = 1, #leases, 2 do
  local front = redis.pcall('GETRANGE', JOB .. leases[at], '0', last)
  held[#held + 1] = holds(front, tonumber(leases[at + 1])) and 1 or 0
end
return held
