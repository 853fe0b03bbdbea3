-- What new jobs of a kind have in common.
local function new_kind(front)
  local flags, priority, _, length = string.byte(front, 3, 6)
  local topic = string.sub(front, SHORT + 1, SHORT + length)
  return {size = #front, flags = flags, priority = priority, topic = topic, counts = under(plan.counts, topic),
    lead = string.sub(front, 1, 2), place = string.char(priority, plan.home, length), limits = string.sub(front, 25, 30),
    rest = string.sub(front, SHORT + 1), may_be_ready = flags < OPTIONAL or retention_in(front, SHORT + length + 1)}
end

local function ready_now(kind)
  kind.entries, kind.members = under(under(plan.push, kind.topic), kind.priority), nil
  kind.mark = whole(kind.number) .. ':'
end

local function delayed_until(kind, due, hourly)
  kind.bins, kind.bin = under(plan.due, kind.topic), bin_at(due, hourly)
  kind.members, kind.at = under(plan.bucket, plan.home), whole(due)
  plan.first[plan.home] = math.min(plan.first[plan.home] or due, due)
end

-- Those that fall due at one time; nil when they take the long way.
local function new_at(kind, front)
  local due, delay = struct.unpack('>I6I6', front, 13)
  if due == 0 then due = (delay == 0 and now_ms or from_ms) + delay end
  due = math.max(due, now_ms)
  local state, hourly = due <= now_ms and ready or delayed, due - now_ms > 86400000
  kind.number, kind.word = now_us % 4294967296, WORDS[state]  -- as in add.lua
  if state == ready then
    if not kind.may_be_ready then return nil end
    kind.number = (kind.number + 1) % 4294967296
    ready_now(kind)
  else
    delayed_until(kind, due, hourly)
  end
  kind.front = kind.lead .. string.char(kind.flags - delayed + state + (hourly and HOURLY or 0)) .. kind.place
    .. struct.pack('>I6I6I6', now_ms, due, due) .. kind.limits .. struct.pack('>I4', kind.number) .. kind.rest
  kind.result = {'created', kind.word, due}
  return kind
end

-- A job whose id nobody has; nil when it takes the long way.
local function create(key, id, record)
  local kind = kind_of(record, new_kind, new_at)
  if not kind then return nil end
  tally(kind.counts, 'created', 1)
  tally(kind.counts, kind.word, 1)
  if kind.members then
    append(kind.members, kind.at, id)
    tally(kind.bins, kind.bin, 1)
  else
    kind.entries[#kind.entries + 1] = kind.mark .. id
  end
  append(plan.records, key, kind.front .. string.sub(record, kind.size + 1))
  return kind.result
end
