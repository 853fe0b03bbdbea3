#!lua flags=allow-oom
-- Write a key that soon expires, so that this connection's last write comes after all earlier writes.
-- arrows: none
-- returns: OK
-- fails: never
-- repeat: yes
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
return redis.call('SET', BARRIER, '', 'PX', 1000)
