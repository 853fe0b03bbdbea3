#!lua flags=allow-oom
-- Take permits of a topic's rate for pops in other shards; permits that those pops do not need lapse.
-- arrows: none
-- returns: {permits, us}: how many were taken; us until some are available again, or 0 if some are left
-- fails: never
-- repeat: yes
-- include: permits
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local topic = ARGV[2]  -- string: the topic
local rate = tonumber(ARGV[3])  -- number: deliveries a second
local burst = tonumber(ARGV[4])  -- number: permits in a full bucket
local want = tonumber(ARGV[5])  -- integer: permits at most
local permits = read_permits(topic, rate, burst)
local taken = math.min(permits_in(permits), want)
take_permits(permits, taken)
return {taken, permits_in(permits) > 0 and 0 or refilled_in(permits)}
