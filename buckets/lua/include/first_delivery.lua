-- A lease of this length: as its end stands in the header, and in a bucket.
local leases = {}
local function lease_of(length)
  local lease, over = leases[length], from_ms + length
  if not lease then
    lease = {header = struct.pack('>I6', over), score = whole(over), members = under(plan.bucket, bucket)}
    plan.first[bucket] = math.min(plan.first[bucket] or over, over)
    leases[length] = lease
  end
  return lease
end

-- A plain job of this topic, at its first delivery with its own ttr: its record as it is then, and its lease; nil for every
-- other. A worker is the only optional field of a job that had none.
local first_delivery = struct.pack('>HI3BI7', 1, 1, 0, now_us)
local block = worker ~= '' and struct.pack('>HBH', 3 + #worker, TAG_WORKER, #worker) .. worker or ''
local function delivered(raw, number, topic)
  local last, flags, priority = plain(raw, ready, SHORT)
  if not last or ttr or string.sub(raw, SHORT + 1, last) ~= topic then return nil end
  local length, _, own_number = struct.unpack('>I4HI4', raw, 25)
  if length == 0 or own_number ~= number or (block ~= '' and flags % 32 >= OPTIONAL) then return nil end
  local lease = lease_of(length)
  flags = flags - ready + reserved + (block ~= '' and OPTIONAL or 0)
  return string.sub(raw, 1, 1) .. string.char(LONG, flags, priority, bucket) .. string.sub(raw, 6, 18) .. lease.header
    .. string.sub(raw, 25, SHORT) .. first_delivery .. string.sub(raw, SHORT + 1, last) .. block .. string.sub(raw, last + 1),
    lease
end
