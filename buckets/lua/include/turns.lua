-- Who gets the next job, and the optional block that tells it, in a record that has no other field.
local worker, block, served, next_at = '', '', 0, 1
local function turn_to(number)
  while number > served do
    local jobs, size = struct.unpack('>HH', workers, next_at)
    worker = string.sub(workers, next_at + 4, next_at + 3 + size)
    block = size > 0 and struct.pack('>HBH', 3 + size, TAG_WORKER, size) .. worker or ''
    served, next_at = served + jobs, next_at + 4 + size
  end
end
