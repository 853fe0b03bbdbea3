-- The lane of the plain jobs, those of nearly every call: their moves are made on the bytes of the record, without a table
-- of the whole job. Whatever is not quite plain goes the long way, which knows everything; both come to the same.
-- The retention that an optional block tells, when nothing else in it has a say in a move; false for
-- one that has, and for one that is damaged.
local function retention_in(block)
  local retention, at = DEFAULT_RETENTION, 3
  while at + 2 <= #block do
    local tag, size = struct.unpack('>BH', block, at)
    if tag == TAG_TTL or tag == TAG_TTR or (tag == TAG_BACKOFF and (size == 0 or size % 6 > 0)) then return false end
    if tag == TAG_RETENTION then
      if size ~= 4 or at + 6 > #block then return false end
      retention = struct.unpack('>I4', block, at + 3)
    end
    at = at + 3 + size
  end
  return at == #block + 1 and retention
end

-- The same for the block at some place of a record. Jobs that come together have mostly the same.
local blocks = {}
local function plain_retention(raw, at)
  local high, low = string.byte(raw, at, at + 1)
  local last = low and at + 1 + high * 256 + low
  if not last or last > #raw then return false end
  local block = string.sub(raw, at, last)
  if blocks[block] == nil then blocks[block] = retention_in(block) end
  return blocks[block]
end

-- Of a plain record in a state, with a header of a length: where its topic ends, its flags, priority, bucket, retention.
local function plain(raw, state, length)
  if type(raw) ~= 'string' or #raw < length then return nil end
  local version, own_length, flags, priority, at_bucket, size = string.byte(raw, 1, 6)
  local last = length + size
  if version ~= 1 or own_length ~= length or flags % 16 ~= state or flags >= 64 or priority % 16 > 9 or size == 0
    or #raw < last then
    return nil
  end
  local retention = flags % 32 < OPTIONAL and DEFAULT_RETENTION or plain_retention(raw, last + 1)
  if retention then return last, flags, priority, at_bucket, retention end
end
