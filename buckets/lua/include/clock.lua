-- The time: Redis's own, or the `now` that a test passes in. A time in the future counts from `from_ms`, rounded up, and
-- what is due is compared with `now_ms`, rounded down: nothing is early, not by a microsecond.
-- argument: now
-- What ends by a time that was passed in must not expire by Redis's: its expiry is `longer`, and readers judge it by `now`.
local now_us, longer = tonumber(now), 1000000000000
if not now_us then
  local clock = redis.call('TIME')
  now_us, longer = clock[1] * 1000000 + clock[2], 0
end
local now_ms = math.floor(now_us / 1000)
local from_ms = math.ceil(now_us / 1000)
