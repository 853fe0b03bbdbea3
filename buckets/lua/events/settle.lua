#!lua flags=allow-oom
-- Acknowledge entries of the event stream, remove those that the journal already has, and read the stream's state.
-- arrows: none
-- returns: {now (us), 1 if events are on else 0, the stream's word, its length or -1 if there is no stream, how many entries
--   were ever added, its last id, its first id or empty, the last id delivered to the group `journal` or empty, and, if
--   events were off, the last id before that and the time (ms) until which they were off, else two empty strings}
-- fails: never
-- repeat: yes
-- include: clock
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local word = ARGV[2]  -- string: the word of the stream that `position` is in, or empty for none
local position = ARGV[3]  -- id of an entry: the journal has this entry and all before it
local behind = ARGV[4]  -- id: the next one that may follow `position`
local acknowledged = {unpack(ARGV, 5)}  -- ids: entries that were delivered to the group

local function pairs_of(list)
  local found = {}
  for at = 1, #list, 2 do found[list[at]] = list[at + 1] end
  return found
end

-- Whether an id equals the other one or comes after it.
local function reaches(id, other)
  local ms, seq = string.match(id, '^(%d+)-(%d+)$')
  local other_ms, other_seq = string.match(other, '^(%d+)-(%d+)$')
  ms, seq, other_ms, other_seq = tonumber(ms), tonumber(seq), tonumber(other_ms), tonumber(other_seq)
  return ms > other_ms or (ms == other_ms and seq >= other_seq)
end

local switch = redis.call('HMGET', meta, 'events', 'stream')
local is_on, found = switch[1] and 1 or 0, switch[2] or ''
local groups = redis.pcall('XINFO', 'GROUPS', EVENTS)
if groups.err then return {now_us, is_on, found, -1, 0, '0-0', '', '', '', ''} end
local given, off_behind, off_until = '', '', ''
for _, each in ipairs(groups) do
  local group = pairs_of(each)
  found = string.match(group.name, '^stream:(%x+)$') or found
  if group.name == 'journal' then given = group['last-delivered-id'] end
  local on_ms = string.match(group.name, '^off:(%d+)$')
  if on_ms then off_behind, off_until = group['last-delivered-id'], on_ms end
end
local stream = pairs_of(redis.call('XINFO', 'STREAM', EVENTS))
-- A stream that went back is left as it is: the journal must compare its entries.
if word == found and given ~= '' and reaches(given, position) and reaches(stream['last-generated-id'], position) then
  for from = 1, #acknowledged, 1000 do
    redis.call('XACK', EVENTS, 'journal', unpack(acknowledged, from, math.min(from + 999, #acknowledged)))
  end
  redis.call('XTRIM', EVENTS, 'MINID', '=', behind)
  stream = pairs_of(redis.call('XINFO', 'STREAM', EVENTS))
end
local first = stream['first-entry']
return {
  now_us, is_on, found, stream.length, stream['entries-added'], stream['last-generated-id'], first and first[1] or '', given,
  off_behind, off_until
}
