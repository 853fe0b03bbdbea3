#!lua flags=no-writes
-- Look a job up, a tombstone too.
-- arrows: none
-- returns: the record, or nil where there is none that can be read
-- fails: never
-- repeat: yes
-- include: time layout index record
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local id = ARGV[2]  -- string: the job
local raw = redis.pcall('GET', JOB .. id)
local job = type(raw) == 'string' and parse(id, raw)
if not job or (job.state >= finished and job.next <= now_ms) then return nil end
return raw
