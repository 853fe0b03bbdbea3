-- What the caller may reach: any topic, one, or those that begin with something.
-- argument: within
local function reaches(job)
  if within == '' or within == job.topic then return true end
  return string.sub(within, -1) == '*' and string.sub(job.topic, 1, #within - 1) == string.sub(within, 1, -2)
end
