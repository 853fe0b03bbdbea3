#!lua flags=allow-oom
-- Keep the stream of a shard's events within its bytes: cut off some of the oldest; and give one its group that has none.
-- arrows: none
-- returns: how many entries were cut off; 0 if the stream is within its bytes
-- fails: never
-- repeat: yes
-- include: indexes event_stream
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local bytes = tonumber(ARGV[1])  -- integer: the most
local page = tonumber(ARGV[2])  -- integer: entries to cut off at most
local fresh = ARGV[3]  -- string: the word of a stream that is made
-- Nodes of the stream that are looked at, which takes 3 ms: all of 400 MB. The first few are the oldest, and say too little.
local SAMPLES = 100000
-- A stream gives memory back by whole nodes, and cuts off no less. This is the most entries of one, as Redis is set by default.
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
