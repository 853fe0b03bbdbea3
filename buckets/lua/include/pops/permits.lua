-- include: clock indexes
-- The permits of a topic's rate: a bucket of `burst` permits that gains one permit every `each` us. Its key holds the time at
-- which the bucket will be full, in us since the epoch; without the key, the bucket is full. No more than `burst` permits can
-- be missing: a key that says otherwise was written before the clock went back, or at another rate. Such a key is corrected;
-- otherwise the topic would stop until that time.
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

-- us until half of the permits, but at least one, are available: a pop that waits for many takes some at a time.
local function refilled_in(bucket)
  local wanted = math.max(math.floor(bucket.burst / 2), 1)
  return math.max(math.ceil((wanted - bucket.burst + bucket.missing) * bucket.each), 0)
end
