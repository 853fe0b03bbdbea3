-- include: indexes
-- Returns the word of the event stream, and creates the stream and the group of its readers if they do not exist. The word is
-- stored in the stream itself, as the name of a group that nobody reads: it lives as long as the stream does, whatever
-- happens to the settings. `fresh`: the word for a stream that has none.
local function found_stream(fresh)
  index('XLEN', EVENTS)  -- another program's key is set aside
  local groups = redis.pcall('XINFO', 'GROUPS', EVENTS)
  local names, word = {}, nil
  for _, group in ipairs(groups.err and {} or groups) do
    names[group[2]] = true
    word = word or string.match(group[2], '^stream:(%x+)$')
  end
  if not names.journal then redis.call('XGROUP', 'CREATE', EVENTS, 'journal', '0', 'MKSTREAM') end
  if not word then redis.call('XGROUP', 'CREATE', EVENTS, 'stream:' .. fresh, '0') end
  return word or fresh
end

-- Write the switch into the shard's settings; returns the word of the stream. If events were off and the stream is still the
-- old one, a group named after the time (ms) marks its last event: moves between that event and that time were not recorded.
local function switch_events(entries, touches, fresh, now_ms)
  local was_off = redis.call('HEXISTS', meta, 'events') == 0 and redis.call('EXISTS', EVENTS) == 1
  local word = found_stream(fresh)
  if was_off then redis.pcall('XGROUP', 'CREATE', EVENTS, 'off:' .. whole(now_ms), '$') end
  redis.call('HSET', meta, 'events', entries, 'stream', word)
  if touches == '1' then redis.call('HSET', meta, 'touches', '1') else redis.call('HDEL', meta, 'touches') end
  return word
end

-- How many of the entries delivered to the group `journal`, but not acknowledged, are still in the stream. `first`: the
-- oldest entry in the stream.
local function held(pending, first)
  if pending == 0 then return 0 end
  local oldest = redis.call('XPENDING', EVENTS, 'journal')[2]
  if #redis.call('XRANGE', EVENTS, oldest, oldest) == 1 then return pending end  -- none was cut off
  return #redis.call('XPENDING', EVENTS, 'journal', first, '+', '10000')
end

-- How many entries of the event stream were not yet delivered to the group, how many were delivered but not acknowledged, and
-- the id of the last one delivered. `length`: the length of the stream.
local function unread(length)
  local groups, group = redis.pcall('XINFO', 'GROUPS', EVENTS), {}
  for _, each in ipairs(groups.err and {} or groups) do
    if each[2] == 'journal' then
      for at = 1, #each, 2 do group[each[at]] = each[at + 1] end
    end
  end
  local last, pending = group['last-delivered-id'] or '0-0', group.pending or 0
  if length == 0 or #redis.call('XRANGE', EVENTS, '(' .. last, '+', 'COUNT', '1') == 0 then return 0, pending, last end
  -- Redis's own lag also counts entries that were cut off unread, and may be missing.
  local ahead = length - held(pending, redis.call('XRANGE', EVENTS, '-', '+', 'COUNT', '1')[1][1])
  return math.min(group.lag or ahead, ahead), pending, last
end

-- The last id that the stream of events has ever had.
local function last_event()
  local stream = redis.pcall('XINFO', 'STREAM', EVENTS)
  for at = 1, stream.err and 0 or #stream, 2 do
    if stream[at] == 'last-generated-id' then return stream[at + 1] end
  end
  return '0-0'
end

