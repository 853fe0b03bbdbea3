-- Where a job is to be found.
local function in_bucket(job)
  return job.state == delayed or job.state == reserved or (job.state == ready and job.ttl)
end

-- When its timer looks at it; at a ready job when its ttl ends.
local function score(job)
  return job.state == ready and job.due + job.ttl or job.next
end
