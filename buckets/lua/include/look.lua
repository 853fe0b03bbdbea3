-- Reading without a trace: what cannot be read is passed over, not set aside.
local function look(id)
  local raw = redis.pcall('GETRANGE', JOB .. id, '0', '127')
  if type(raw) ~= 'string' then return nil end
  local job, short = parse(id, raw)
  return short and parse(id, redis.call('GET', JOB .. id)) or job
end
