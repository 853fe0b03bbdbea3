#!lua flags=allow-oom
-- Let numbers name jobs, until some time after their leases end.
-- arrows: none
-- returns: OK
-- fails: never
-- repeat: yes
-- include: clock indexes
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local kept = tonumber(ARGV[2])  -- integer: ms for which an alias is kept after the end of the lease
local aliases = {unpack(ARGV, 3)}  -- strings: number, id, end of the lease (ms; 0 for no lease), …
for at = 1, #aliases, 3 do
  local left = math.max(tonumber(aliases[at + 2]) - now_ms, 0)
  redis.call('SET', ALIAS .. aliases[at], aliases[at + 1], 'PX', whole(left + kept + longer))
end
return redis.status_reply('OK')
