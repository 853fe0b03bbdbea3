#!lua flags=no-writes
-- Read what the live instances last reported about the workers that poll through them.
-- arrows: none
-- returns: a list of reports, each preceded by the ms since the epoch at which it was written, and a space
-- fails: never
-- repeat: yes
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local living = redis.pcall('ZRANGE', MEMBERS, 0, -1)
local reports = {}
for _, token in ipairs(living) do
  local report = redis.pcall('GET', WORKERS .. token)
  if type(report) == 'string' then reports[#reports + 1] = report end
end
return reports
