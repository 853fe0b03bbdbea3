-- The lane of the plain jobs, those of nearly every call: their moves are made on the bytes of the record, in one loop, without
-- a table of the job and with few functions, as each function, and each variable that it shares with the script, is made
-- anew in every run. Jobs that come together mostly differ in nothing but id and body: what follows from the head of a
-- record is kept until another comes. Whatever is not quite plain goes the long way, which knows everything; both come to
-- the same. When a job went the long way, that writes for all; what a lane writes itself, it writes in plan.lua's order.
-- Of a plain job in a state, with a header of a length: where its topic ends, its flags, priority, bucket, retention.
local before, last_before, flags_before, priority_before, bucket_before, retention_before
local function plain(front, state, length)
  if type(front) ~= 'string' or #front < length then return nil end
  if before and string.sub(front, 1, #before) == before then
    return last_before, flags_before, priority_before, bucket_before, retention_before
  end
  local version, own_length, flags, priority, at_bucket, size = string.byte(front, 1, 6)
  local last = length + size
  if version ~= 1 or own_length ~= length or flags % 16 ~= state or flags >= 64 or priority % 16 > 9 or size == 0
    or #front < last then
    return nil
  end
  local retention, behind = DEFAULT_RETENTION, last
  if flags % 32 >= OPTIONAL then retention, behind = retention_in(front, last + 1) end
  if not retention then return nil end
  before, last_before, flags_before, priority_before = string.sub(front, 1, behind), last, flags, priority
  bucket_before, retention_before = at_bucket, retention
  return last, flags, priority, at_bucket, retention
end
