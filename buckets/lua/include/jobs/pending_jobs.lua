-- include: indexes planned_writes
-- How many delayed and ready jobs a topic has, including planned ones.
local function pending_jobs(topic)
  local counts, planned = index('HMGET', COUNTS .. topic, 'delayed', 'ready'), plan.counts[topic] or {}
  local pending = (tonumber(counts[1] or 0) or 0) + (tonumber(counts[2] or 0) or 0)
  return pending + (planned.delayed or 0) + (planned.ready or 0)
end
