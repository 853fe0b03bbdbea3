#!lua flags=allow-oom
-- Keep the dead letters of a topic within their bounds: delete the oldest.
-- arrows: dead -> deleted
-- returns: entries dealt with; 0 when the rest is within the bounds
-- fails: never
-- repeat: yes
-- include: time record moves
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local topic = ARGV[2]  -- string: whose
local age = tonumber(ARGV[3])  -- integer: ms that one is kept, or empty
local most = tonumber(ARGV[4])  -- integer: how many are kept, or empty
local page = ARGV[5]  -- integer: entries at most
local set = DEAD .. topic
local over = most and index('ZCARD', set) - most or 0
local dealt = 0
for rank, id in ipairs(index('ZRANGE', set, 0, page - 1)) do
  local job = read_job(id)
  if not job or job.state ~= dead or job.topic ~= topic then
    table.insert(under(plan.unbury, topic), id)  -- the pool is the truth
  elseif rank <= over or (age and job.next + age <= now_ms) then
    entomb(job, deleted)
  else
    break
  end
  dealt = dealt + 1
end
commit()
return dealt
