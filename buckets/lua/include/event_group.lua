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
