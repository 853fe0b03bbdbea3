-- include: clock indexes
-- The permits of a topic's rate: a bucket of `burst`, into which one comes each `each` us. Its key holds when it will be full, in
-- us since the epoch; without the key it is full. More is never missing than all: a key that says so was written by a clock
-- that has gone back since, or at another rate, and is corrected, or the topic would stand still until then.
local function read_permits(topic, rate, burst)
  local each, raw = 1000000 / rate, redis.pcall('GET', PERMITS .. topic)
  local full_at = type(raw) == 'string' and #raw < 18 and tonumber(string.match(raw, '^%d+$')) or now_us
  local left = math.max(full_at - now_us, 0)
  return {topic = topic, each = each, burst = burst, missing = math.min(left / each, burst), is_wrong = left > burst * each + 1}
end

local function permits_in(bucket) return math.floor(bucket.burst - bucket.missing) end

local function take_permits(bucket, n)
  if n == 0 and not bucket.is_wrong then return end
  bucket.missing = bucket.missing + n
  local left = math.ceil(bucket.missing * bucket.each)
  redis.call('SET', PERMITS .. bucket.topic, whole(now_us + left), 'PX', whole(math.ceil(left / 1000) + 1000 + longer))
end

-- us until half of its permits are there, but at least one: who waits for many takes some at a time.
local function refilled_in(bucket)
  local wanted = math.max(math.floor(bucket.burst / 2), 1)
  return math.max(math.ceil((wanted - bucket.burst + bucket.missing) * bucket.each), 0)
end
