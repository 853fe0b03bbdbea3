#!lua flags=allow-oom
-- Keep the dead letters of topics within their limits by deleting the oldest.
-- arrows: dead -> deleted
-- returns: entries processed; 0 if all topics are within their limits
-- fails: never
-- repeat: yes
-- include: clock indexes planned_writes record moves
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local by = ARGV[2]  -- string: the instance and any actor, recorded in events
local page = tonumber(ARGV[3])  -- integer: entries at most
local topics = {unpack(ARGV, 4)}  -- strings: topic, ms that a dead letter is kept, how many are kept (0 for all), …
local processed = 0

-- The oldest dead letters if there are too many, otherwise those that are too old. The second value: whether there are too many.
local function excess(set, age, most)
  local over = most > 0 and index('ZCARD', set) - most or 0
  if over > 0 then return index('ZRANGE', set, 0, math.min(over, page) - 1), true end
  return index('ZRANGE', set, '-inf', now_ms - age, 'BYSCORE', 'LIMIT', 0, page), false
end

for at = 1, #topics, 3 do
  if processed >= page then break end
  local topic, age = topics[at], tonumber(topics[at + 1])
  local ids, over = excess(DEAD .. topic, age, tonumber(topics[at + 2]))
  for _, id in ipairs(ids) do
    if processed >= page then break end
    local job = read_job(id)
    if not job or job.state ~= dead or job.topic ~= topic then
      table.insert(under(plan.unbury, topic), id)  -- the record does not confirm it
      processed = processed + 1
    elseif over or job.next + age <= now_ms then
      job.keeps_body = nil  -- the trim must free memory
      entomb(job, deleted)
      processed = processed + 1
    end
  end
end
commit(VERB_TRIM)
return processed
