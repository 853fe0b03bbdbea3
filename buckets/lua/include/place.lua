-- Whether a job belongs in a bucket.
local function in_bucket(job)
  return job.state == delayed or job.state == reserved or (job.state == ready and job.ttl)
end

-- When the timer looks at a job in a bucket: at the end of its ttl if the job is ready, else at `next`.
local function score(job)
  return job.state == ready and job.due + job.ttl or job.next
end
