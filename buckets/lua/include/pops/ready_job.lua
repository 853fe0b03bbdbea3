-- include: clock record
-- The ready job of an entry, or nil if the entry is stale or the job's ttl is over (then its timer buries the job).
local function ready_job(mark, id, raw)
  local number = string.find(mark, '^%d+$') and tonumber(mark)
  if not number then return nil end
  local job = judge(id, type(raw) == 'string' and parse(id, raw), raw)
  if not job or job.state ~= ready or job.number ~= number then return nil end
  if job.ttl and job.due + job.ttl <= now_ms then return nil end
  return job
end
