-- Index keys, whatever another program made of them.
-- Keep something that cannot be used under its id or its key, for the operator; should the hash for it be something else
-- itself, that is kept first.
local function keep_aside(name, raw)
  local reply = redis.pcall('HSET', ASIDE, name, raw)
  if type(reply) ~= 'table' or not reply.err then return end
  if not string.find(reply.err, 'WRONGTYPE') then return error(reply) end
  local other = redis.call('DUMP', ASIDE)
  redis.call('UNLINK', ASIDE)
  redis.call('HSET', ASIDE, ASIDE, other, name, raw)
end

-- Call Redis on an index key. One that another program made something else of is set aside first, and then the index
-- begins anew: it must not block the topics that share a page with it.
local function index(command, key, ...)
  local reply = redis.pcall(command, key, ...)
  if type(reply) ~= 'table' or not reply.err then return reply end
  if not string.find(reply.err, 'WRONGTYPE') and not string.find(reply.err, 'not an integer')
    and not string.find(reply.err, 'overflow') then
    return error(reply)
  end
  keep_aside(key, redis.call('DUMP', key))
  redis.call('UNLINK', key)
  redis.call('PUBLISH', BELL, 'aside ' .. key)
  return redis.call(command, key, ...)
end
