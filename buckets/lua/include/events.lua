-- What this script records about its moves for a journal (see buckets/events): nothing, unless `meta` says how many entries
-- to keep. A damaged `meta` must not block moves.
-- include: clock indexes
-- argument: by
local most_entries, told  -- told: id, value, id, value, … as in the entry; false if events are off; nil if not asked yet
local function ask_for_events()
  most_entries = redis.pcall('HGET', meta, 'events')
  told = type(most_entries) == 'string' and string.find(most_entries, '^%d+$') and {} or false
end

-- Write the entry, after all other writes and before the bell rings. `flags`: EVENT_NEW, or 0.
local function tell_all(verb, flags)
  if #told == 0 then return end
  local head = struct.pack('>BBBI7', EVENT_VERSION, verb, flags, now_us) .. by
  index('XADD', EVENTS, 'MAXLEN', '~', most_entries, '*', 'm', head, unpack(told))
end
