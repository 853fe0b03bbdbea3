#!lua flags=allow-oom
-- Take the next numbers of the namespace's counter. After 2147483647, the counter starts again at 1.
-- arrows: none
-- returns: the first of these numbers
-- fails: never
-- repeat: yes
-- include: indexes
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local count = tonumber(ARGV[1])  -- integer: how many numbers
local known = tonumber(ARGV[2])  -- integer: the last number that the caller knows of, or 0
local MOST = 2147483647  -- clients read them as signed integers of 32 bits
local last = index('INCRBY', COUNTER, '0')
if last < 0 or last > MOST then last = 0 end  -- another program's value
-- A failover lost some numbers, or the counter is gone. (A counter that is far behind has started again.)
if known > last and known - last < MOST / 2 then last = known end
redis.call('SET', COUNTER, whole((last + count - 1) % MOST + 1))
return last % MOST + 1
