-- Who gets the job of a number, and the optional block that tells it, in a record that has no other field.
local worker, block, served, next_at = '', '', 0, 1
local function turn_to(number)
  while number > served do
    local jobs, size = struct.unpack('>HH', workers, next_at)
    worker = string.sub(workers, next_at + 4, next_at + 3 + size)
    block = size > 0 and struct.pack('>HBH', 3 + size, TAG_WORKER, size) .. worker or ''
    served, next_at = served + jobs, next_at + 4 + size
  end
end

-- What ready jobs of a kind have in common at their first delivery, with their own ttr; nil for those that are not plain.
local function first_delivery(front)
  local last, flags, priority = plain(front, ready, SHORT)
  if not last or ttr or (block ~= '' and flags % 32 >= OPTIONAL) then return nil end
  local length = struct.unpack('>I4', front, 25)
  if length == 0 then return nil end
  local over = from_ms + length
  flags = flags - ready + reserved + (block ~= '' and OPTIONAL or 0)
  return {size = #front, counts = under(plan.counts, string.sub(front, SHORT + 1, last)), over = over, score = whole(over),
    lead = string.sub(front, 1, 1) .. string.char(LONG, flags, priority, bucket), lease_end = struct.pack('>I6', over),
    rest = struct.pack(DELIVERY, 1, 1, 0, now_us) .. string.sub(front, SHORT + 1)}
end

-- Those that were created, due and pushed at one time.
local function first_delivery_of(kind, front)
  kind.number = struct.unpack('>I4', front, 31)
  kind.front = kind.lead .. string.sub(front, 6, 18) .. kind.lease_end .. string.sub(front, 25, SHORT) .. kind.rest
  return kind
end

-- Of a job that can be handed out so, its record from now on and its kind; nil for every other.
local function deliver_first(raw, number)
  local kind = kind_of(raw, first_delivery, first_delivery_of)
  if kind and kind.number == number then return kind.front .. block .. string.sub(raw, kind.size + 1), kind end
end
