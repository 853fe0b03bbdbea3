-- include: faults place
-- The entries of an index that no record confirms, and the key of the index. Reads only. `family`: b for a bucket, d for
-- dead letters; `which`: the bucket's number, or the topic.
local function orphans(family, which, ids)
  local set, found = (family == 'b' and BUCKET or DEAD) .. which, {}
  local function belongs(job)
    if family == 'b' then return in_bucket(job) and job.bucket == tonumber(which) end
    return job.state == dead and job.topic == which
  end
  for _, id in ipairs(ids) do
    local job = inspect(id)
    if not (job and belongs(job)) and score_in(set, id) then found[#found + 1] = id end
  end
  return found, set
end
