#!lua flags=no-writes
-- Count the delayed jobs of topics that fall due in some bins of their histograms.
-- arrows: none
-- returns: {{jobs, …}, due, later, due, later, …}: the jobs of all topics in each bin; for each topic how many are in these bins,
--   and how many delayed jobs are not
-- fails: never
-- repeat: yes
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local small = tonumber(ARGV[1])  -- integer: the most bins of a histogram that is read whole
local asked = tonumber(ARGV[2])  -- integer: how many bins
local rest = {unpack(ARGV, 3)}  -- strings: their names, and the topics
local sums, place_of, names = {}, {}, {}
for place = 1, asked do sums[place], names[place], place_of[rest[place]] = 0, rest[place], place end

-- Another program's values count as none, until `fsck` puts them right.
local function number(value)
  return type(value) == 'string' and tonumber(string.match(value, '^%-?%d+$')) or 0
end

local due  -- of the current topic
local function add(place, value)
  local jobs = number(value)
  sums[place], due = sums[place] + jobs, due + jobs
end

local reply = {sums}
for at = asked + 1, #rest do
  local topic = rest[at]
  due = 0
  local size = redis.pcall('HLEN', DUE .. topic)
  if type(size) == 'number' and size > small then
    for place, value in ipairs(redis.call('HMGET', DUE .. topic, unpack(names))) do
      if value then add(place, value) end
    end
  elseif type(size) == 'number' and size > 0 then
    local flat = redis.call('HGETALL', DUE .. topic)
    for field = 1, #flat, 2 do
      if place_of[flat[field]] then add(place_of[flat[field]], flat[field + 1]) end
    end
  end
  reply[#reply + 1] = due
  reply[#reply + 1] = math.max(number(redis.pcall('HGET', COUNTS .. topic, 'delayed')) - due, 0)
end
return reply
