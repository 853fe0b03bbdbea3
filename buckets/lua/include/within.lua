-- What the caller may reach: a list of patterns, separated by blanks, of which the job's topic must match one; or several such
-- lists, one a line, of which it must match each; empty: any topic. See buckets/topics/within.py.
-- argument: within
local function matches_any(topic, patterns)
  for pattern in string.gmatch(patterns, '[^ ]+') do
    if pattern == topic then return true end
    local literal = string.gsub(pattern, '[%^%$%(%)%%%.%[%]%+%-]', '%%%0')
    local form = string.gsub(string.gsub(literal, '%*', '.*'), '%?', '.')
    if string.find(topic, '^' .. form .. '$') then return true end
  end
  return false
end

local function reaches(job)
  if within == '' or within == job.topic then return true end
  for patterns in string.gmatch(within, '[^\n]+') do
    if not matches_any(job.topic, patterns) then return false end
  end
  return true
end
