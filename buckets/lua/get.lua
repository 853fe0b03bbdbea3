#!lua flags=no-writes
-- Look a job up, a tombstone too.
-- arrows: none
-- returns: the record, or nil
-- fails: never
-- repeat: yes
-- include: time
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local id = ARGV[2]  -- string: the job
local raw = redis.pcall('GET', JOB .. id)
if type(raw) ~= 'string' or #raw < 34 then return nil end
-- States 5 and 6 are tombstones; theirs is the time when they end.
if string.byte(raw, 3) % 8 >= 5 and struct.unpack('>I6', raw, 19) <= now_ms then return nil end
return raw
