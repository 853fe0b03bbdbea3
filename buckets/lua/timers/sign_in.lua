#!lua flags=allow-oom
-- Sign in as a live instance, and remove the members that have not signed in for too long.
-- arrows: none
-- returns: now (us); the ms until the next member would be removed if it does not sign in again (-1 if none would be soon); 1
--   if this instance was not a member before, else 0; the version of the records of tokens, or empty; the fields events and
--   touches of the settings, or empty; 1 if there is a stream of events, else 0; the tokens of the members, including this
--   one
-- fails: NO_META if the shard's settings are gone
-- repeat: yes
-- include: clock
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local token = ARGV[1]  -- string: the token of this instance
local life = tonumber(ARGV[2])  -- integer: ms for which an instance counts as live after it signed in
local apart = tonumber(ARGV[3])  -- integer: ms; a member is kept if it signed in within this time of our own last sign-in
local now = ARGV[4]  -- integer: us since the epoch, or empty for Redis's clock
local versioned = ARGV[5]  -- integer: 1 if the version of the records of tokens (write_tokens.lua) is asked for, else 0
local KEPT_MS, RENEWED_MS = 60000, 20000  -- how long the list outlives its last member, and how often its expiry is renewed
local signed = redis.pcall('ZRANGE', MEMBERS, 0, -1, 'WITHSCORES')
local foreign = signed.err ~= nil  -- another program's key in the place of the list would stop all timers
if foreign then signed = {} end
local at = {}
for place = 1, #signed, 2 do at[signed[place]] = tonumber(signed[place + 1]) end
local own = at[token]
-- (For the other shards, beat.lua checks this.)
if redis.call('EXISTS', meta) == 0 then return redis.error_reply('NO_META ') end
-- Whether a member was already silent well before our own last sign-in. If not, Redis stood still or was replaced by another
-- Redis: nobody could sign in then, and the first instance to do so again would find all others dead.
local function silent(ms) return not own or math.abs(own - ms) > apart end
local living, gone, soonest = {token}, {}, -1
for other, ms in pairs(at) do
  local left = life - math.abs(now_ms - ms)  -- a time in the future means that the clock went back
  if left < 0 and other ~= token and silent(ms) then
    gone[#gone + 1] = other
  elseif other ~= token then
    living[#living + 1] = other
    if left >= 0 and (soonest < 0 or left < soonest) then soonest = left end
  end
end
if foreign then redis.call('DEL', MEMBERS) end
if #gone > 0 then
  redis.call('ZREM', MEMBERS, unpack(gone))
  redis.pcall('HDEL', CARDS, unpack(gone))  -- another program's key in the place of the cards must not stop timers
end
redis.call('ZADD', MEMBERS, now_ms, token)
-- (The second is a margin: our last sign-in may come from `sign_again` (members.py), which does not renew the expiry.)
if not own or math.floor((own - 1000) / RENEWED_MS) ~= math.floor(now_ms / RENEWED_MS) then
  redis.call('PEXPIRE', MEMBERS, KEPT_MS)
end
local version = versioned == '1' and redis.pcall('HGET', TOKENS, '!version')
local switch = redis.pcall('HMGET', meta, 'events', 'touches')  -- damaged settings must not stop timers
return {
  now_us, soonest, own and 0 or 1, type(version) == 'string' and version or '', switch[1] or '', switch[2] or '',
  redis.call('EXISTS', EVENTS), unpack(living)
}
