#!lua flags=allow-oom
-- Write something that soon expires, so that this connection's last write comes after everything done before.
-- arrows: none
-- returns: OK
-- fails: never
-- repeat: yes
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
return redis.call('SET', BARRIER, '', 'PX', 1000)
