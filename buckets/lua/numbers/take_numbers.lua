#!lua flags=allow-oom
-- Take the next numbers of the namespace's counter. Behind 2147483647 it begins again with 1.
-- arrows: none
-- returns: the first of them
-- fails: never
-- repeat: yes
-- include: indexes
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local count = tonumber(ARGV[1])  -- integer: how many
local known = tonumber(ARGV[2])  -- integer: the last that the caller knows of, or 0
local MOST = 2147483647  -- clients read them as signed integers of 32 bits
local last = index('INCRBY', COUNTER, '0')
if last < 0 or last > MOST then last = 0 end  -- another program's
-- A failover forgot some, or the counter is gone. (One that is far behind has begun again.)
if known > last and known - last < MOST / 2 then last = known end
redis.call('SET', COUNTER, whole((last + count - 1) % MOST + 1))
return last % MOST + 1
