-- include: record
-- The job of an id, if it has the given state and topic, and its record without the body. Has no side effects: an unreadable
-- record is skipped, not set aside.
-- Most jobs that a walk meets belong to another topic. The bytes of their headers show this, which is much cheaper.
local function peek_job(id, state, topic)
  local raw = redis.pcall('GETRANGE', JOB .. id, '0', '127')
  if type(raw) ~= 'string' or #raw < SHORT then return nil end
  local _, length, flags, _, _, size = string.byte(raw, 1, 6)
  if flags % 8 ~= state or (#raw >= length + size and string.sub(raw, length + 1, length + size) ~= topic) then
    return nil
  end
  local job = parse(id, raw)
  if not job then job, raw = read_front(id) end
  if not job or job.topic ~= topic then return nil end
  return job, string.sub(raw, 1, job.body_at - 1)
end
