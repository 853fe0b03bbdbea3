#!lua flags=allow-oom
-- Take permits out of a bucket that fills at a rate, for a process to spend.
-- arrows: none
-- returns: {leased, us}: the number of permits leased; if none, the us until the bucket holds `least` permits, otherwise 0
-- fails: never
-- repeat: yes
-- include: clock
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local whose = ARGV[2]  -- string: the owner of the bucket
local rate = tonumber(ARGV[3])  -- integer: permits added per second
local burst = tonumber(ARGV[4])  -- integer: permits in a full bucket
local least = tonumber(ARGV[5])  -- integer: the fewest permits to lease
local most = tonumber(ARGV[6])  -- integer: the most permits to lease
local owed = tonumber(ARGV[7])  -- integer: permits spent without a lease; they may lower the level to `-burst`
local key = RATE .. whose
local kept = redis.pcall('HMGET', key, 'level', 'at')
if kept.err then
  redis.call('DEL', key)
  kept = {}
end

-- How many permits the bucket holds now. A clock that went back neither adds nor removes permits.
local function filled()
  local level, at = tonumber(kept[1] or burst), tonumber(kept[2] or now_us)
  local now_full = math.min(burst, level + math.max(now_us - at, 0) * rate / 1000000)
  return math.max(now_full - owed, math.min(now_full, -burst))
end

local full = filled()
local leased = full >= least and math.min(math.floor(full), most) or 0
local level = full - leased
redis.call('HSET', key, 'level', string.format('%.6f', level), 'at', string.format('%.0f', now_us))
-- A full bucket need not be kept. It expires a second later, so that nothing depends on the exact moment.
redis.call('PEXPIRE', key, math.ceil((burst - level) / rate * 1000) + 1000)
return {leased, leased > 0 and 0 or math.ceil(math.max(least - level, 0) / rate * 1000000)}
