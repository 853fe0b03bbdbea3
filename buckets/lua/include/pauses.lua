-- include: clock
-- us until the first of the paused topics resumes; -1 if none is paused, -2 if all are paused until an explicit resume.
local opens = -1

-- Whether a topic is paused now; a key that does not hold a time is ignored.
local function paused(topic)
  local until_ms = redis.pcall('GET', PAUSED .. topic)
  until_ms = type(until_ms) == 'string' and #until_ms < 16 and tonumber(string.match(until_ms, '^%d+$'))
  if not until_ms or (until_ms ~= 0 and until_ms <= now_ms) then return false end
  local again = until_ms > 0 and until_ms * 1000 - now_us or -2
  if opens < 0 or (again >= 0 and again < opens) then opens = again end
  return true
end
