-- What delayed jobs of a kind have in common when they become ready; nil for those that are not plain and due.
local function promotion(front)
  local last, flags, priority, at_bucket = plain(front, delayed, SHORT)
  if not last or at_bucket ~= bucket then return nil end
  local at, _, _, number = struct.unpack('>I6I4HI4', front, 19)
  if at > now_ms then return nil end
  local topic = string.sub(front, SHORT + 1, last)
  number = (number + 1) % 4294967296
  local header = string.sub(front, 1, 2) .. string.char(flags - delayed + ready) .. string.sub(front, 4, 18)
    .. struct.pack('>I6', now_ms) .. string.sub(front, 25, 30) .. struct.pack('>I4', number)
  return {jobs = 0, topic = topic, at = at, hourly = flags >= HOURLY, header = header,
    mark = whole(number) .. ':', entries = under(under(plan.push, topic), priority % 16)}
end

-- Make a delayed job ready; false when it takes the long way.
local function promote(id)
  local key = JOB .. id
  local kind = kind_of(redis.pcall('GETRANGE', key, '0', '127'), promotion)
  if not kind then return false end
  kind.jobs = kind.jobs + 1
  kind.entries[#kind.entries + 1] = kind.mark .. id
  append(plan.headers, key, kind.header)
  return true
end
