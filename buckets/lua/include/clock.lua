-- The time: Redis's own, or the `now` that a test passes in. Future times are counted from `from_ms`, rounded up, and due
-- times are compared with `now_ms`, rounded down, so that nothing is early, not even by a microsecond.
-- argument: now
-- A key whose end is computed from a `now` that was passed in must not expire by Redis's clock: `longer` is added to its
-- expiry, and readers judge it by `now`.
local now_us, longer = tonumber(now), 1000000000000
if not now_us then
  local clock = redis.call('TIME')
  now_us, longer = clock[1] * 1000000 + clock[2], 0
end
local now_ms = math.floor(now_us / 1000)
local from_ms = math.ceil(now_us / 1000)
