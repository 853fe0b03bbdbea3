#!lua flags=no-writes
-- Read the records of schedules.
-- arrows: none
-- returns: {now, record, …}: ms since the epoch; a record for each name, or nothing if there is none
-- fails: never
-- repeat: yes
-- include: clock
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local names = {unpack(ARGV, 2)}  -- strings: the names of schedules
local found = redis.pcall('HMGET', SCHEDULES, unpack(names))  -- an error where another program's key is in its place
local answer = {now_ms}
for place = 1, #names do answer[place + 1] = not found.err and found[place] end
return answer
