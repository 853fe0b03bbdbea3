-- The fast path of due, pop and finish is for simple jobs, which nearly all jobs are. It changes the bytes of the records, in
-- one loop, without a table for each job and with few functions, because each function, and each variable that it shares with
-- the script, is created again in every run. Jobs that come together mostly differ only in id and body, so whatever follows
-- from the head of a record is kept until a different head comes. In case of doubt, a job takes the complete path, which
-- handles everything; both have the same result. Once a job has taken the complete path, that path writes for all jobs. A
-- fast path that writes by itself writes in the order of planned_writes.lua.
-- include: retention
-- For a simple job in the given state, with a header of the given length: where its topic ends, its flags, priority, bucket
-- and retention. Returns nil for any other job.
local before, last_before, flags_before, priority_before, bucket_before, retention_before
local function simple(front, state, length)
  if type(front) ~= 'string' or #front < length then return nil end
  if before and string.sub(front, 1, #before) == before then
    return last_before, flags_before, priority_before, bucket_before, retention_before
  end
  local version, own_length, flags, priority, at_bucket, size = string.byte(front, 1, 6)
  local last = length + size
  if version ~= VERSION or own_length ~= length or flags % 16 ~= state or flags % 128 >= HOLDS or priority % 16 > 9 or size == 0
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
