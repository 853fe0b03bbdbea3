#!lua flags=allow-oom
-- Take permits out of a bucket that fills at a rate, for a process to spend.
-- arrows: none
-- returns: how many permits are leased; where there are none, the us until there is one, else 0
-- fails: never
-- repeat: yes
-- include: clock
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local whose = ARGV[2]  -- string: whose bucket
local rate = tonumber(ARGV[3])  -- integer: permits that come in a second
local burst = tonumber(ARGV[4])  -- integer: permits that the bucket holds when it is full
local least = tonumber(ARGV[5])  -- integer: permits without which the lease is of no use
local most = tonumber(ARGV[6])  -- integer: permits that are wanted
local owed = tonumber(ARGV[7])  -- integer: permits that were spent without a lease; the level may fall to a burst below 0
local key = RATE .. whose
local kept = redis.pcall('HMGET', key, 'level', 'at')
if kept.err then
  redis.call('DEL', key)
  kept = {}
end

-- How full the bucket is now. A clock that went back adds nothing, and takes nothing.
local function filled()
  local level, at = tonumber(kept[1] or burst), tonumber(kept[2] or now_us)
  local now_full = math.min(burst, level + math.max(now_us - at, 0) * rate / 1000000)
  return math.max(now_full - owed, math.min(now_full, -burst))
end

local full = filled()
local leased = full >= least and math.min(math.floor(full), most) or 0
local level = full - leased
redis.call('HSET', key, 'level', string.format('%.6f', level), 'at', string.format('%.0f', now_us))
-- A full bucket need not be kept. It stays a second longer: nothing depends on the moment at which Redis drops it.
redis.call('PEXPIRE', key, math.ceil((burst - level) / rate * 1000) + 1000)
return {leased, leased > 0 and 0 or math.ceil(math.max(least - level, 0) / rate * 1000000)}
