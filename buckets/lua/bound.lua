#!lua flags=allow-oom
-- Keep the dead letters of topics within their bounds: delete the oldest.
-- arrows: dead -> deleted
-- returns: entries dealt with; 0 when all topics are within their bounds
-- fails: never
-- repeat: yes
-- include: time layout index plan record moves
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local page = tonumber(ARGV[2])  -- integer: entries at most
local topics = {unpack(ARGV, 3)}  -- strings: topic, ms that a dead letter is kept, how many are kept (0: all), …
local dealt = 0

-- The oldest, as far as they are too many; when they are not, those that are too old.
local function beyond(set, age, most)
  local over = most > 0 and index('ZCARD', set) - most or 0
  if over > 0 then return index('ZRANGE', set, 0, math.min(over, page) - 1), true end
  return index('ZRANGE', set, '-inf', now_ms - age, 'BYSCORE', 'LIMIT', 0, page), false
end

for at = 1, #topics, 3 do
  if dealt >= page then break end
  local topic, age = topics[at], tonumber(topics[at + 1])
  local ids, over = beyond(DEAD .. topic, age, tonumber(topics[at + 2]))
  for _, id in ipairs(ids) do
    if dealt >= page then break end
    local job = read_job(id)
    if not job or job.state ~= dead or job.topic ~= topic then
      table.insert(under(plan.unbury, topic), id)  -- the pool does not bear it out
      dealt = dealt + 1
    elseif over or job.next + age <= now_ms then
      entomb(job, deleted)
      dealt = dealt + 1
    end
  end
end
commit()
return dealt
