#!lua flags=allow-oom
-- Store the card of a member, and remove the cards of instances that are no longer members.
-- arrows: none
-- returns: 1, or 0 if the instance is not a member
-- fails: never
-- repeat: yes
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local token = ARGV[1]  -- string: the token of this instance
local card = ARGV[2]  -- string: JSON
local function is_member(other) return type(redis.pcall('ZSCORE', MEMBERS, other)) == 'string' end
if not is_member(token) then return 0 end
local cards = redis.pcall('HGETALL', CARDS)
if cards.err then redis.call('DEL', CARDS) end  -- another program's key
for place = 1, #cards, 2 do
  -- An instance of an earlier version removes members without removing their cards.
  if not is_member(cards[place]) then redis.call('HDEL', CARDS, cards[place]) end
end
redis.call('HSET', CARDS, token, card)
return 1
