-- What every script that writes indexes needs, fast path or not.
-- A whole number as a string. Leaving the conversion to Redis (%.17g) or to Lua (%.14g) costs more than the command.
local function whole(number) return string.format('%d', number) end

local function under(family, key)
  local found = family[key]
  if not found then
    found = {}
    family[key] = found
  end
  return found
end

-- Keep an unusable value under its id or its key, for the operator. If the key of the hash for such values is not a hash, the
-- value of that key is kept first.
local function keep_aside(name, raw)
  local reply = redis.pcall('HSET', ASIDE, name, raw)
  if type(reply) ~= 'table' or not reply.err then return end
  if not string.find(reply.err, 'WRONGTYPE') then return error(reply) end
  local other = redis.call('DUMP', ASIDE)
  redis.call('UNLINK', ASIDE)
  redis.call('HSET', ASIDE, ASIDE, other, name, raw)
end

-- Call Redis on an index key. If another program has overwritten the key with an unusable value, that value is set aside
-- first, and the index starts empty: it must not block the topics that share a page with it.
local function index(command, key, ...)
  local reply = redis.pcall(command, key, ...)
  if type(reply) ~= 'table' or not reply.err then return reply end
  if not string.find(reply.err, 'WRONGTYPE') and not string.find(reply.err, 'not an integer')
    and not string.find(reply.err, 'overflow') then
    return error(reply)
  end
  keep_aside(key, redis.call('DUMP', key))
  redis.call('UNLINK', key)
  redis.call('SPUBLISH', BELL, 'aside ' .. key)
  return redis.call(command, key, ...)
end

-- Drop the ready lists of a topic that has no ready job: whatever they still hold is stale.
local function drop_lists(topic)
  local lists = {}
  for priority = 0, 9 do lists[priority + 1] = READY .. priority .. ':' .. topic end
  redis.call('UNLINK', unpack(lists))
end

-- The histogram bin of a pending job: above zero for minutes, below zero for hours.
local function bin_at(at, hourly) return hourly and -math.floor(at / 3600000) or math.floor(at / 60000) end

local function write_bins(topic, bins)
  for bin, n in pairs(bins) do
    local field = string.format(bin < 0 and 'h%d' or 'm%d', math.abs(bin))
    if n ~= 0 and index('HINCRBY', DUE .. topic, field, whole(n)) <= 0 then index('HDEL', DUE .. topic, field) end
  end
end
