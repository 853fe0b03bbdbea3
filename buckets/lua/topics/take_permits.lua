#!lua flags=allow-oom
-- Take permits of a topic's rate for pops in other shards; those that these do not need lapse.
-- arrows: none
-- returns: {permits, us}: how many; us until some are there again, 0 where some are left
-- fails: never
-- repeat: yes
-- include: permits
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local topic = ARGV[2]  -- string: whose
local rate = tonumber(ARGV[3])  -- number: deliveries a second
local burst = tonumber(ARGV[4])  -- number: permits when all are there
local want = tonumber(ARGV[5])  -- integer: permits at most
local permits = read_permits(topic, rate, burst)
local taken = math.min(permits_in(permits), want)
take_permits(permits, taken)
return {taken, permits_in(permits) > 0 and 0 or refilled_in(permits)}
