#!lua flags=allow-oom
-- Sign the roll of the living instances, and strike off those that have not signed for too long.
-- arrows: none
-- returns: now (us); the ms until another is struck off, should it not sign again (-1: nobody would be soon); the tokens
--   of the living, ours among them
-- fails: NO_META when the shard's settings are gone
-- repeat: yes
-- include: time
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local token = ARGV[1]  -- string: who signs
local life = tonumber(ARGV[2])  -- integer: ms after its last signature in which an instance counts as living
local apart = tonumber(ARGV[3])  -- integer: ms; who signed no longer than that before us is not struck off
local now = ARGV[4]  -- integer: us since the epoch; empty: Redis's own clock
local KEPT_MS, RENEWED_MS = 60000, 20000  -- how long the roll outlives its last instance, and how often that is renewed
local signed = redis.pcall('ZRANGE', ROLL, 0, -1, 'WITHSCORES')
local foreign = signed.err ~= nil  -- another program's key in its place would stop all timers
if foreign then signed = {} end
local at = {}
for place = 1, #signed, 2 do at[signed[place]] = tonumber(signed[place + 1]) end
local own = at[token]
-- A roll on which we stand was not emptied; the beats of the locks look after the rest.
if not own and redis.call('EXISTS', meta) == 0 then return redis.error_reply('NO_META ') end
-- Whether another has been silent since before our own last signature. Else it was Redis that stood still, or another
-- Redis has taken its place: then nobody could sign, and whoever came first would find all others dead.
local function silent(ms) return not own or math.abs(own - ms) > apart end
local living, gone, soonest = {token}, {}, -1
for other, ms in pairs(at) do
  local left = life - math.abs(now_ms - ms)  -- a signature that lies ahead is that of a clock which went back
  if left < 0 and other ~= token and silent(ms) then
    gone[#gone + 1] = other
  elseif other ~= token then
    living[#living + 1] = other
    if left >= 0 and (soonest < 0 or left < soonest) then soonest = left end
  end
end
if foreign then redis.call('DEL', ROLL) end
if #gone > 0 then redis.call('ZREM', ROLL, unpack(gone)) end
redis.call('ZADD', ROLL, now_ms, token)
if not own or math.floor(own / RENEWED_MS) ~= math.floor(now_ms / RENEWED_MS) then
  redis.call('PEXPIRE', ROLL, KEPT_MS)
end
return {now_us, soonest, unpack(living)}
