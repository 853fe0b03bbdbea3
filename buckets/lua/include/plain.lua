-- The lane of the plain jobs in add, those of nearly every call: their moves are made on the bytes of the record, without a table
-- of the whole job. Whatever is not quite plain goes the long way, which knows everything; both come to the same.
-- All of a record that stands before its body, as far as it was read.
local function front_of(raw)
  local _, length, flags, _, _, size = string.byte(raw, 1, 6)
  if not size then return raw end
  local last = length + size
  if flags % 32 >= OPTIONAL and #raw > last + 1 then last = last + 2 + struct.unpack('>H', raw, last + 1) end
  return string.sub(raw, 1, last)
end

-- What a script knows of a plain record by its front; false or nil for one that takes the long way. Jobs that come together
-- mostly differ in nothing but id, body and times: so what `make` knows without the times is kept until a front comes that
-- differs in more, and what `vary` puts to it (or nil) until one comes with other times.
local front_before, still_before, made, kind
local function kind_of(raw, make, vary)
  if type(raw) ~= 'string' then return false end
  local front = front_of(raw)
  if front == front_before then return kind end
  local still = string.sub(front, 1, 6) .. string.sub(front, 25, 30) .. string.sub(front, (string.byte(front, 2) or 0) + 1)
  if still ~= still_before then still_before, made = still, make(front) end
  front_before, kind = front, made and vary(made, front)
  return kind
end

local function tally(counts, field, n) counts[field] = (counts[field] or 0) + n end
