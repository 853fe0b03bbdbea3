-- The retention that an optional block holds, and where the block ends; nil if another field in the block affects a move, or
-- if the block is damaged or was not read to its end.
local function retention_in(front, at)
  if #front <= at then return nil end
  local retention, last = DEFAULT_RETENTION, at + 1 + struct.unpack('>H', front, at)
  at = at + 2
  while at + 2 <= last and last <= #front do
    local tag, size = struct.unpack('>BH', front, at)
    if tag == TAG_TTL or tag == TAG_TTR or tag == TAG_KEY or (tag == TAG_BACKOFF and (size == 0 or size % 6 > 0)) then
      return nil
    end
    if tag == TAG_RETENTION then
      if size ~= 4 or at + 6 > last then return nil end
      retention = struct.unpack('>I4', front, at + 3)
    end
    at = at + 3 + size
  end
  if at == last + 1 then return retention, last end
end
