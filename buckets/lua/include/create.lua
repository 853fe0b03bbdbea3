-- What new jobs of a kind have in common.
local function new_kind(front)
  local flags, priority, _, length = string.byte(front, 3, 6)
  local due, delay = struct.unpack('>I6I6', front, 13)
  if due == 0 then due = (delay == 0 and now_ms or from_ms) + delay end
  due = math.max(due, now_ms)
  local state, topic = due <= now_ms and ready or delayed, string.sub(front, SHORT + 1, SHORT + length)
  local number = now_us % 4294967296  -- as in add.lua
  local hourly = due - now_ms > 86400000
  local kind = {size = #front, counts = under(plan.counts, topic), word = WORDS[state]}
  if state == ready then
    if flags >= OPTIONAL and not retention_in(front, SHORT + length + 1) then return nil end
    number = (number + 1) % 4294967296
    kind.entries, kind.mark = under(under(plan.push, topic), priority), whole(number) .. ':'
  else
    kind.bins, kind.bin = under(plan.due, topic), bin_at(due, hourly)
    kind.members, kind.at = under(plan.bucket, plan.home), whole(due)
    plan.first[plan.home] = math.min(plan.first[plan.home] or due, due)
  end
  flags = flags - delayed + state + (hourly and HOURLY or 0)
  kind.front = string.sub(front, 1, 2) .. string.char(flags, priority, plan.home, length)
    .. struct.pack('>I6I6I6', now_ms, due, due) .. string.sub(front, 25, 30) .. struct.pack('>I4', number)
    .. string.sub(front, SHORT + 1)
  kind.result = {'created', WORDS[state], due}
  return kind
end

-- A job whose id nobody has; nil when it takes the long way.
local function create(key, id, record)
  local kind = kind_of(record, new_kind)
  if not kind then return nil end
  tally(kind.counts, 'created', 1)
  tally(kind.counts, kind.word, 1)
  if kind.entries then
    kind.entries[#kind.entries + 1] = kind.mark .. id
  else
    append(kind.members, kind.at, id)
    tally(kind.bins, kind.bin, 1)
  end
  append(plan.records, key, kind.front .. string.sub(record, kind.size + 1))
  return kind.result
end
