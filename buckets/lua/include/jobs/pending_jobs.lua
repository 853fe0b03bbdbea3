-- include: indexes planned_writes
-- How many delayed and ready jobs a topic has, including planned ones.
local function pending_jobs(topic)
  local counts, planned = index('HMGET', COUNTS .. topic, 'delayed', 'ready', 'blocked'), plan.counts[topic] or {}
  local pending = (planned.delayed or 0) + (planned.ready or 0) + (planned.blocked or 0)
  for place = 1, 3 do pending = pending + (tonumber(counts[place] or 0) or 0) end
  return pending
end
