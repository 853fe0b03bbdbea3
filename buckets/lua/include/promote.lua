-- Plain jobs that became ready, of one topic: how many, in all and of each time, those counted by the hour apart.
local groups = {}
local function group_of(topic)
  local group = groups[topic] or {jobs = 0, minutes = {}, hours = {}, entries = under(plan.push, topic)}
  groups[topic] = group
  return group
end

-- The next number of a ready entry: as it stands in the entry, and in the header.
local marks = {}
local function mark_after(number)
  local next_number = (number + 1) % 4294967296
  local found = marks[number] or {entry = whole(next_number) .. ':', header = struct.pack('>I4', next_number)}
  marks[number] = found
  return found
end

-- A delayed job that is plain; false for every other entry.
local since = struct.pack('>I6', now_ms)
local function promote(id)
  local key = JOB .. id
  local raw = redis.pcall('GETRANGE', key, '0', '127')
  local last, flags, priority, at_bucket = plain(raw, delayed, SHORT)
  if not last or at_bucket ~= bucket then return false end
  local at, _, _, number = struct.unpack('>I6I4HI4', raw, 19)
  if at > now_ms then return false end
  local group, mark = group_of(string.sub(raw, SHORT + 1, last)), mark_after(number)
  local times, entries = flags >= HOURLY and group.hours or group.minutes, under(group.entries, priority % 16)
  group.jobs = group.jobs + 1
  times[at] = (times[at] or 0) + 1
  entries[#entries + 1] = mark.entry .. id
  append(plan.headers, key, string.sub(raw, 1, 2) .. string.char(flags - delayed + ready) .. string.sub(raw, 4, 18)
    .. since .. string.sub(raw, 25, 30) .. mark.header)
  return true
end
