-- What the jobs of a topic have in common that become ready: where they are counted, and told together if they were due
-- together (how many, by time).
local promoted, groups = {}, {}
local function group_of(topic)
  local group = groups[topic]
  if not group then
    group = {counts = under(plan.counts, topic), bins = under(plan.due, topic), times = under(promoted, topic),
      entries = under(plan.push, topic)}
    groups[topic] = group
  end
  return group
end

-- What delayed jobs of a kind have in common when they become ready; nil for those that are not plain and due.
local since = struct.pack('>I6', now_ms)
local function promotion(front)
  local last, flags, priority, at_bucket = plain(front, delayed, SHORT)
  if not last or at_bucket ~= bucket then return nil end
  local at, _, _, number = struct.unpack('>I6I4HI4', front, 19)
  if at > now_ms then return nil end
  local group = group_of(string.sub(front, SHORT + 1, last))
  number = (number + 1) % 4294967296
  return {at = at, group = group, bin = bin_at(at, flags >= HOURLY), mark = whole(number) .. ':',
    entries = under(group.entries, priority % 16),
    header = string.sub(front, 1, 2) .. string.char(flags - delayed + ready) .. string.sub(front, 4, 18) .. since
      .. string.sub(front, 25, 30) .. struct.pack('>I4', number)}
end

-- Make a delayed job ready; false when it takes the long way.
local function promote(id)
  local key = JOB .. id
  local kind = kind_of(redis.pcall('GETRANGE', key, '0', '127'), promotion)
  if not kind then return false end
  local group = kind.group
  tally(group.counts, 'delayed', -1)
  tally(group.counts, 'ready', 1)
  tally(group.bins, kind.bin, -1)
  tally(group.times, kind.at, 1)
  kind.entries[#kind.entries + 1] = kind.mark .. id
  append(plan.headers, key, kind.header)
  return true
end
