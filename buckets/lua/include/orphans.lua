-- The entries of an index that no record bears out. Reads only.
local set = (family == 'b' and BUCKET or DEAD) .. which

local function belongs(job)
  if family == 'b' then return in_bucket(job) and job.bucket == tonumber(which) end
  return job.state == dead and job.topic == which
end

local function orphans(ids)
  local found = {}
  for _, id in ipairs(ids) do
    local job = inspect(id)
    if not (job and belongs(job)) and score_in(set, id) then found[#found + 1] = id end
  end
  return found
end
