-- The job of an id, if it is in a state of a topic. Reads without a trace: what cannot be read is passed over, not set
-- aside. Most that a walk meets is of another topic, and told apart by the bytes of its header, which is much cheaper.
local function look(id, state, topic)
  local raw = redis.pcall('GETRANGE', JOB .. id, '0', '127')
  if type(raw) ~= 'string' or #raw < SHORT then return nil end
  local _, length, flags, _, _, size = string.byte(raw, 1, 6)
  if flags % 8 ~= state or (#raw >= length + size and string.sub(raw, length + 1, length + size) ~= topic) then
    return nil
  end
  local job = parse(id, raw) or read_front(id)
  return job and job.topic == topic and job or nil
end
