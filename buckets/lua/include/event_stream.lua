-- include: indexes
-- The stream of events, made if it is not there, with the group of its readers; returns its word. The word stands in the
-- stream itself, as the name of a group that nobody reads: it lives as long as the stream does, whatever becomes of the
-- settings. `fresh`: the word of a stream that has none.
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

-- Write the switch into the settings of the shard; returns the word of the stream. Where events were off and the stream is
-- that of before, a group whose name has the time (ms) stands behind the last event: from there until then nobody told of moves.
local function switch_events(entries, touches, fresh, now_ms)
  local was_off = redis.call('HEXISTS', meta, 'events') == 0 and redis.call('EXISTS', EVENTS) == 1
  local word = found_stream(fresh)
  if was_off then redis.pcall('XGROUP', 'CREATE', EVENTS, 'off:' .. whole(now_ms), '$') end
  redis.call('HSET', meta, 'events', entries, 'stream', word)
  if touches == '1' then redis.call('HSET', meta, 'touches', '1') else redis.call('HDEL', meta, 'touches') end
  return word
end

-- How many of the entries that the group `journal` was given, and has not acknowledged, are still in the stream. `first`: the
-- oldest entry there.
local function held(pending, first)
  if pending == 0 then return 0 end
  local oldest = redis.call('XPENDING', EVENTS, 'journal')[2]
  if #redis.call('XRANGE', EVENTS, oldest, oldest) == 1 then return pending end  -- none was cut off
  return #redis.call('XPENDING', EVENTS, 'journal', first, '+', '10000')
end

-- How many entries of the stream of events are behind the last that the group was given, how many it was given and has not
-- acknowledged, and the last that it was given. `length`: of the stream.
local function unread(length)
  local groups, group = redis.pcall('XINFO', 'GROUPS', EVENTS), {}
  for _, each in ipairs(groups.err and {} or groups) do
    if each[2] == 'journal' then
      for at = 1, #each, 2 do group[each[at]] = each[at + 1] end
    end
  end
  local last, pending = group['last-delivered-id'] or '0-0', group.pending or 0
  if length == 0 or #redis.call('XRANGE', EVENTS, '(' .. last, '+', 'COUNT', '1') == 0 then return 0, pending, last end
  -- Redis's own number counts also what was cut off unread, and it may have none.
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

