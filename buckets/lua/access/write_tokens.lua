#!lua flags=allow-oom
-- Write the token records that are newer than the stored ones, drop others, and announce the new version.
-- arrows: none
-- returns: {written, version}: 1, or 0 if nothing was done because the version is not the one that the writer saw; the
--   current version
-- fails: NO_META if the shard's settings are gone
-- repeat: yes
-- include: clock
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local seen = ARGV[2]  -- integer: the version that the writer saw, or empty for any
local least = tonumber(ARGV[3])  -- integer: the next version must exceed this one
local records = {unpack(ARGV, 4)}  -- strings: id, time of the change (us), JSON or empty to drop the record, id, …
if redis.call('EXISTS', meta) == 0 then return redis.error_reply('NO_META ') end
local version = tonumber(redis.call('HGET', TOKENS, '!version')) or 0
if seen ~= '' and tonumber(seen) ~= version then return {0, version} end

-- When the stored record was changed, or 0 if there is none or it cannot be read.
local function kept_since(id)
  local is_read, record = pcall(cjson.decode, redis.call('HGET', TOKENS, id) or '')
  return is_read and type(record) == 'table' and tonumber(record.changed) or 0
end

local writes, drops = {}, {}
for at = 1, #records, 3 do
  local id, changed, record = records[at], tonumber(records[at + 1]), records[at + 2]
  local kept = kept_since(id)
  if record == '' and kept <= changed then
    drops[#drops + 1], drops[#drops + 2] = id, 'used:' .. id
  elseif record ~= '' and kept < changed then
    writes[#writes + 1], writes[#writes + 2] = id, record
  end
end
if #drops > 0 then redis.call('HDEL', TOKENS, unpack(drops)) end
if #writes > 0 then
  -- Derived from the time, so that no version is used twice, not even after a failover that lost some versions.
  version = math.max(version + 1, least + 1, now_us)
  local text = string.format('%.0f', version)
  redis.call('HSET', TOKENS, '!version', text, unpack(writes))
  redis.call('SPUBLISH', BELL, 'tokens ' .. text)
end
return {1, version}
