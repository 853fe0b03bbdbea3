-- The lane of the plain jobs, those of nearly every call: their moves are made on the bytes of the record, without a table
-- of the whole job. Whatever is not quite plain goes the long way, which knows everything; both come to the same.
-- The retention that an optional block tells, when nothing else in it has a say in a move; nil for one that has, and for
-- one that is damaged or was not read to its end.
local function retention_in(front, at)
  if #front <= at then return nil end
  local retention, last = DEFAULT_RETENTION, at + 1 + struct.unpack('>H', front, at)
  at = at + 2
  while at + 2 <= last and last <= #front do
    local tag, size = struct.unpack('>BH', front, at)
    if tag == TAG_TTL or tag == TAG_TTR or (tag == TAG_BACKOFF and (size == 0 or size % 6 > 0)) then return nil end
    if tag == TAG_RETENTION then
      if size ~= 4 or at + 6 > last then return nil end
      retention = struct.unpack('>I4', front, at + 3)
    end
    at = at + 3 + size
  end
  if at == last + 1 then return retention end
end

-- Of a plain job in a state, with a header of a length: where its topic ends, its flags, priority, bucket, retention.
local function plain(front, state, length)
  if #front < length then return nil end
  local version, own_length, flags, priority, at_bucket, size = string.byte(front, 1, 6)
  local last = length + size
  if version ~= 1 or own_length ~= length or flags % 16 ~= state or flags >= 64 or priority % 16 > 9 or size == 0
    or #front < last then
    return nil
  end
  local retention = flags % 32 < OPTIONAL and DEFAULT_RETENTION or retention_in(front, last + 1)
  if retention then return last, flags, priority, at_bucket, retention end
end

-- All of a record that stands before its body, as far as it was read.
local function front_of(raw)
  local _, length, flags, _, _, size = string.byte(raw, 1, 6)
  if not size then return raw end
  local last = length + size
  if flags % 32 >= OPTIONAL and #raw > last + 1 then last = last + 2 + struct.unpack('>H', raw, last + 1) end
  return string.sub(raw, 1, last)
end

-- What a script knows of a plain record by its front; false or nil for one that takes the long way. Jobs that come together
-- mostly differ in nothing but id, body and times: so what `make` knows without the times is kept until a front comes that
-- differs in more, and what `vary` puts to it (or nil) until one comes with other times.
local front_before, still_before, made, kind
local function kind_of(raw, make, vary)
  if type(raw) ~= 'string' then return false end
  local front = front_of(raw)
  if front == front_before then return kind end
  local still = string.sub(front, 1, 6) .. string.sub(front, 25, 30) .. string.sub(front, (string.byte(front, 2) or 0) + 1)
  if still ~= still_before then still_before, made = still, make(front) end
  front_before, kind = front, made and vary(made, front)
  return kind
end

local function tally(counts, field, n) counts[field] = (counts[field] or 0) + n end
