-- Writing optional fields: a record with one is written whole, because its body moves.
-- The optional block of a job after setting one field.
local function with_optional(job, tag, value)
  local fields, block = job.optional or {}, {}
  fields[tag] = value
  for each, text in pairs(fields) do block[#block + 1] = struct.pack('>BH', each, #text) .. text end
  job.optional = fields
  local text = table.concat(block)
  return struct.pack('>H', #text) .. text
end

-- The topic of a record, preceded by what a longer header of a later version holds behind the part that we write.
local function head_of(job, raw)
  return string.sub(raw, math.min(job.header, LONG) + 1, job.header + #job.topic)
end

-- All of a record behind its header, after setting one field.
local function rest_with(job, raw, tag, value)
  return head_of(job, raw) .. with_optional(job, tag, value) .. string.sub(raw, job.body_at)
end
