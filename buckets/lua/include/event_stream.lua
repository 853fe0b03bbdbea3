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

-- Write the switch into the settings of the shard; returns the word of the stream.
local function switch_events(entries, touches, fresh)
  local word = found_stream(fresh)
  redis.call('HSET', meta, 'events', entries, 'stream', word)
  if touches == '1' then redis.call('HSET', meta, 'touches', '1') else redis.call('HDEL', meta, 'touches') end
  return word
end
