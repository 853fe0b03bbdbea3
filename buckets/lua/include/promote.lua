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

-- What delayed jobs of a kind have in common when they become ready; nil for those that are not plain.
local function promotion(front)
  local last, flags, priority, at_bucket = plain(front, delayed, SHORT)
  if not last or at_bucket ~= bucket then return nil end
  local group = group_of(string.sub(front, SHORT + 1, last))
  return {group = group, priority = priority % 16, hourly = flags >= HOURLY,
    lead = string.sub(front, 1, 2) .. string.char(flags - delayed + ready), limits = string.sub(front, 25, 30)}
end

-- Those of one time; nil for those that are not due.
local since = struct.pack('>I6', now_ms)
local function promotion_of(kind, front)
  local at, _, _, number = struct.unpack('>I6I4HI4', front, 19)
  if at > now_ms then return nil end
  number = (number + 1) % 4294967296
  kind.at, kind.bin, kind.mark = at, bin_at(at, kind.hourly), whole(number) .. ':'
  kind.entries = under(kind.group.entries, kind.priority)
  kind.header = kind.lead .. string.sub(front, 4, 18) .. since .. kind.limits .. struct.pack('>I4', number)
  return kind
end

-- Make a delayed job ready; false when it takes the long way.
local function promote(id)
  local key = JOB .. id
  local kind = kind_of(redis.pcall('GETRANGE', key, '0', '127'), promotion, promotion_of)
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
