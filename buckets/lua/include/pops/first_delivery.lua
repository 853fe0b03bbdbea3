-- include: clock
-- argument: bucket
-- What pop.lua and due.lua write on their fast paths when a simple job is delivered for the first time.
local FIRST = struct.pack(DELIVERY, 1, 1, 0, now_us)

-- The worker that begins at a place in a list of workers (see pop.lua): how many jobs it wants, its name, the optional block
-- that names it in a record without other fields, and the place where the next worker begins.
local function worker_at(workers, place)
  local jobs, size = struct.unpack('>HH', workers, place)
  local name, next_place = string.sub(workers, place + 4, place + 3 + size), place + 4 + size
  return jobs, name, size > 0 and struct.pack('>HBH', 3 + size, TAG_WORKER, size) .. name or '', next_place
end

-- The record of a delivered job up to the end of the worker's block or, without a block, of the topic; the caller appends
-- what follows the topic in `raw`. `flags`: without the state; `over`: when the lease ends; `rest`: ttr, tries and number as
-- they are now.
local function delivered_front(raw, flags, level, over, rest, topic, block)
  return string.char(VERSION, LONG, flags + reserved + (block ~= '' and OPTIONAL or 0), level, bucket) .. string.sub(raw, 6, 18)
    .. struct.pack('>I6', over) .. rest .. FIRST .. topic .. block
end
