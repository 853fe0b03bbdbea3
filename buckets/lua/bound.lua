#!lua flags=allow-oom
-- Keep the dead letters of topics within their bounds: delete the oldest.
-- arrows: dead -> deleted
-- returns: entries dealt with; 0 when all topics are within their bounds
-- fails: never
-- repeat: yes
-- include: time record moves
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local page = tonumber(ARGV[2])  -- integer: entries at most
local topics = {unpack(ARGV, 3)}  -- strings: topic, ms that a dead letter is kept, how many are kept (0: all), …
local dealt = 0

-- An entry that the pool does not bear out goes too. False when it stays, as do all behind it then.
local function drop(topic, id, age, over)
  local job = read_job(id)
  if not job or job.state ~= dead or job.topic ~= topic then
    table.insert(under(plan.unbury, topic), id)
  elseif over > 0 or job.next + age <= now_ms then
    entomb(job, deleted)
  else
    return false
  end
  dealt = dealt + 1
  return true
end

for at = 1, #topics, 3 do
  local topic, age, most = topics[at], tonumber(topics[at + 1]), tonumber(topics[at + 2])
  local over = most > 0 and index('ZCARD', DEAD .. topic) - most or 0
  for _, id in ipairs(index('ZRANGE', DEAD .. topic, 0, over > 0 and page - 1 or 0)) do
    if dealt >= page or not drop(topic, id, age, over) then break end
    over = over - 1
  end
end
commit()
return dealt
