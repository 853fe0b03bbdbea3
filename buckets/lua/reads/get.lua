#!lua flags=no-writes
-- Look up a job or its tombstone.
-- arrows: none
-- returns: the record, or nil if there is no readable one
-- fails: never
-- repeat: yes
-- include: clock record within
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local id = ARGV[2]  -- string: the job's id
local within = ARGV[3]  -- string: the topics that the caller may access (see within.lua), or empty for any
local raw = redis.pcall('GET', JOB .. id)
local job = type(raw) == 'string' and parse(id, raw)
if not job or not reaches(job) or (job.state >= finished and job.next <= now_ms) then return nil end
return raw
