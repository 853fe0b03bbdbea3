#!lua flags=allow-oom
-- Delete jobs in any live state.
-- arrows: delayed -> deleted, ready -> deleted, reserved -> deleted, dead -> deleted
-- returns: a list, for each job the state it was in
-- fails: for a job, in its place in the list: NOT_FOUND, WRONG_STATE finished
-- repeat: yes
-- include: planned_writes record delete_job
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local by = ARGV[2]  -- string: who makes the moves, for their events
local ids = {unpack(ARGV, 3)}  -- strings: the jobs. No id twice.

local results = {}
for _, id in ipairs(ids) do results[#results + 1] = delete_job(read_job(id)) end
commit(VERB_DELETE)
return results
