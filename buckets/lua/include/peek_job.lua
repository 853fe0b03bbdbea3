-- include: record
-- The job of an id, if it is in a state of a topic. Reads without a trace: an unreadable record is skipped, not set aside.
-- Most jobs that a walk meets are of another topic, and recognised by the bytes of their header, which is much cheaper.
local function peek_job(id, state, topic)
  local raw = redis.pcall('GETRANGE', JOB .. id, '0', '127')
  if type(raw) ~= 'string' or #raw < SHORT then return nil end
  local _, length, flags, _, _, size = string.byte(raw, 1, 6)
  if flags % 8 ~= state or (#raw >= length + size and string.sub(raw, length + 1, length + size) ~= topic) then
    return nil
  end
  local job = parse(id, raw) or read_front(id)
  return job and job.topic == topic and job or nil
end
