#!lua flags=allow-oom
-- Note that tokens were used.
-- arrows: none
-- returns: OK
-- fails: never
-- repeat: yes
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local uses = {unpack(ARGV, 1)}  -- strings: id, minute (unix seconds), id, …; a later minute that is already stored is kept
for at = 1, #uses, 2 do
  local kept = tonumber(redis.call('HGET', TOKENS, 'used:' .. uses[at])) or 0
  if kept < tonumber(uses[at + 1]) then redis.call('HSET', TOKENS, 'used:' .. uses[at], uses[at + 1]) end
end
return redis.status_reply('OK')
