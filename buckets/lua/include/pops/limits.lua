-- include: indexes permits
-- argument: ttr
-- What a topic may still deliver: how many jobs (`permits`), how many of them with a lease (`places`), and whether these jobs
-- hold a place (`holds`), so that the bell rings when the place is free again. The other arguments are strings: `rate`,
-- deliveries a second, or empty for any number, or 0 for at most `burst` deliveries, whose permits were taken in another
-- shard; `burst`, see permits.lua; `concurrency`, jobs reserved at a time, or 0 for any number.
local function limit_of(topic, rate, burst, concurrency)
  local limit = {permits = math.huge, places = math.huge, holds = concurrency ~= '0'}
  if rate == '0' then
    limit.permits = tonumber(burst)
  elseif rate ~= '' then
    limit.bucket = read_permits(topic, tonumber(rate), tonumber(burst))
    limit.permits = permits_in(limit.bucket)
  end
  if limit.holds and ttr ~= 0 then
    limit.places = tonumber(concurrency) - (tonumber(index('HGET', COUNTS .. topic, 'reserved')) or 0)
  end
  return limit
end

-- Which limit a topic has reached, if any, and in how many us a pop should look again: UNKNOWN if that cannot be known, as
-- for a place; the bell rings when a place is free.
local UNKNOWN = 1000000
local function reached(limit)
  if not limit then return nil end
  if limit.places < 1 then return 'concurrency', UNKNOWN end
  if limit.permits < 1 then return 'rate', limit.bucket and refilled_in(limit.bucket) or UNKNOWN end
end
