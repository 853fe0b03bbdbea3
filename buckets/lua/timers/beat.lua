#!lua flags=allow-oom
-- Acquire and keep the locks of those of a shard's timers that this instance wants, and release the others that it holds.
-- arrows: none
-- returns: for each bucket 1 if this instance now holds its lock, else 0; then the fields events and touches of the settings,
--   or empty; and 1 if there is a stream of events, else 0
-- fails: NO_META if the shard's settings are gone
-- repeat: yes
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local token = ARGV[1]  -- string: the token of this instance
local lease = ARGV[2]  -- integer: ms until a lock expires
local wanted = ARGV[3]  -- string: for each bucket 1 if its lock is wanted, else 0
local living = {unpack(ARGV, 4)}  -- strings: the tokens of the instances that keep their locks
local locks = {}
for number = 1, #wanted do locks[number] = LOCK .. (number - 1) end
if redis.call('EXISTS', meta) == 0 then return redis.error_reply('NO_META ') end
local lives = {}
for _, each in ipairs(living) do lives[each] = true end
local owners = redis.call('MGET', unpack(locks))
local ours, given = {}, 0
for number = 1, #wanted do
  local owner = owners[number]
  local is_wanted = string.sub(wanted, number, number) == '1'
  -- A lock that never expires was not set by an instance; left alone, it would stop its timer for ever.
  if is_wanted and (owner == token or not lives[owner] or redis.call('PTTL', locks[number]) == -1) then
    redis.call('SET', locks[number], token, 'PX', lease)
    ours[number] = 1
  else
    if owner == token then
      redis.call('DEL', locks[number])
      given = given + 1
    end
    ours[number] = 0
  end
end
local switch = redis.pcall('HMGET', meta, 'events', 'touches')  -- damaged settings must not stop timers
ours[#wanted + 1], ours[#wanted + 2], ours[#wanted + 3] = switch[1] or '', switch[2] or '', redis.call('EXISTS', EVENTS)
if given > 0 then redis.call('SPUBLISH', BELL, 'free') end
return ours
