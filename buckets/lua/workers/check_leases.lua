#!lua flags=no-writes
-- Check which leases still hold: their jobs are reserved, and were not delivered again since.
-- arrows: none
-- returns: a list, for each job 1 or 0
-- fails: never
-- repeat: yes
-- include: record
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local leases = {unpack(ARGV, 2)}  -- strings: id, lease, …
local held = {}
for at = 1, #leases, 2 do
  local job = read_front(leases[at])
  held[#held + 1] = job and job.state == reserved and job.lease == tonumber(leases[at + 1]) and 1 or 0
end
return held
