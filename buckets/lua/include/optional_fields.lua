-- Writing optional fields: a record in which one changes is written whole, because its body moves.
-- The optional block of a job after setting one field; an empty value removes the field.
local function with_optional(job, tag, value)
  local fields, block = job.optional or {}, {}
  fields[tag] = value ~= '' and value or nil
  for each, text in pairs(fields) do block[#block + 1] = struct.pack('>BH', each, #text) .. text end
  job.optional = #block > 0 and fields or nil
  if #block == 0 then return '' end
  local text = table.concat(block)
  return struct.pack('>H', #text) .. text
end

-- The topic of a record, preceded by the header bytes that a later version appended after the part that this version writes.
local function head_of(job, raw)
  return string.sub(raw, math.min(job.header, LONG) + 1, job.header + #job.topic)
end

-- Everything in a record after its header, with the reason of a delivery and its note (after a `=`) set; nil if both are
-- empty.
local function rest_with(job, raw, reason, note)
  if reason == '' and note == '' then return nil end
  local block
  if reason ~= '' then block = with_optional(job, TAG_REASON, reason) end
  if note ~= '' then block = with_optional(job, TAG_NOTE, string.sub(note, 2)) end
  return head_of(job, raw) .. block .. string.sub(raw, job.body_at)
end
