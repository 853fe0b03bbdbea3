#!lua flags=allow-oom
-- Keep a shard's event stream within its byte limit by cutting off the oldest entries, and restore its group if it has none.
-- arrows: none
-- returns: how many entries were cut off; 0 if the stream is within its limit
-- fails: never
-- repeat: yes
-- include: indexes event_stream
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local bytes = tonumber(ARGV[1])  -- integer: the most bytes of the stream
local page = tonumber(ARGV[2])  -- integer: the most entries to cut off
local fresh = ARGV[3]  -- string: the word for a newly created stream
-- How many nodes of the stream to sample: enough for all of 400 MB, in 3 ms. The first few are the oldest, which are not
-- representative.
local SAMPLES = 100000
-- A stream is trimmed, and frees memory, only by whole nodes. NODE is the most entries of one by Redis's default settings.
local NODE = 100
local switch = redis.pcall('HMGET', meta, 'events', 'touches', 'stream')
if switch[1] and found_stream(fresh) ~= switch[3] then switch_events(switch[1], switch[2] or '', fresh) end
local length = redis.pcall('XLEN', EVENTS)
if type(length) ~= 'number' or length == 0 then return 0 end
local used = redis.call('MEMORY', 'USAGE', EVENTS, 'SAMPLES', SAMPLES)
if used <= bytes then return 0 end
local excess = math.min(math.ceil(length * (1 - bytes / used)), page)
local function cut(entries)
  return redis.call('XTRIM', EVENTS, 'MAXLEN', '~', whole(math.max(length - entries, 0)), 'LIMIT', page)
end
local gone = cut(excess)
return gone > 0 and gone or cut(NODE)
