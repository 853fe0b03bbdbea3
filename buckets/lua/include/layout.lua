-- The numbers of the record (its layout stands in job.py).
local delayed, ready, reserved, dead, finished, deleted = 1, 2, 3, 4, 5, 6
local WORDS = {'delayed', 'ready', 'reserved', 'dead', 'finished', 'deleted'}
local HEADER, DELIVERY = '>BBBBBBI6I6I6I4HI4', '>HI3BI7'
local SHORT, LONG = 34, 47  -- bytes of a header: never popped, popped
local OPTIONAL, HOURLY = 16, 32
local TAG_TTL, TAG_RETENTION, TAG_BACKOFF, TAG_TTR, TAG_WORKER, TAG_REASON = 1, 2, 3, 4, 5, 6
local DEFAULT_RETENTION = 60000

-- The retention that an optional block tells, and where the block ends, when nothing else in it has a say in a move; nil for
-- one that has, and for one that is damaged or was not read to its end.
local function retention_in(front, at)
  if #front <= at then return nil end
  local retention, last = DEFAULT_RETENTION, at + 1 + struct.unpack('>H', front, at)
  at = at + 2
  while at + 2 <= last and last <= #front do
    local tag, size = struct.unpack('>BH', front, at)
    if tag == TAG_TTL or tag == TAG_TTR or (tag == TAG_BACKOFF and (size == 0 or size % 6 > 0)) then return nil end
    if tag == TAG_RETENTION then
      if size ~= 4 or at + 6 > last then return nil end
      retention = struct.unpack('>I4', front, at + 3)
    end
    at = at + 3 + size
  end
  if at == last + 1 then return retention, last end
end
