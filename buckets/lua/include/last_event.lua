-- The last id that the stream of events has ever had.
local function last_event()
  local stream = redis.pcall('XINFO', 'STREAM', EVENTS)
  for at = 1, stream.err and 0 or #stream, 2 do
    if stream[at] == 'last-generated-id' then return stream[at + 1] end
  end
  return '0-0'
end

