-- The topics that the caller may access: a list of patterns, separated by blanks, of which the job's topic must match at
-- least one; or several such lists, one per line, all of which the topic must match; or empty for any topic. See
-- buckets/topics/within.py.
-- argument: within
local function form_of(part)
  return (string.gsub(string.gsub(part, '[%^%$%(%)%%%.%[%]%+%-]', '%%%0'), '%?', '.'))
end

-- Never backtracks, because a pattern with many stars could otherwise take seconds: the text between two stars is matched
-- where it first occurs. Names are ASCII, so each character of the pattern, except for the stars, is one byte of the topic.
local function matches(topic, pattern)
  local parts = {}
  for part in string.gmatch(pattern .. '*', '([^*]*)%*') do parts[#parts + 1] = part end
  local first, last = parts[1], parts[#parts]
  if #parts == 1 then return string.find(topic, '^' .. form_of(first) .. '$') ~= nil end
  local at, stop = #first + 1, #topic - #last
  if at - 1 > stop or not string.find(topic, '^' .. form_of(first)) then return false end
  if not string.find(topic, '^' .. form_of(last), stop + 1) then return false end
  for number = 2, #parts - 1 do
    local _, to = string.find(topic, form_of(parts[number]), at)
    if not to or to > stop then return false end
    at = to + 1
  end
  return true
end

local function matches_any(topic, patterns)
  for pattern in string.gmatch(patterns, '[^ ]+') do
    if pattern == topic or matches(topic, pattern) then return true end
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
