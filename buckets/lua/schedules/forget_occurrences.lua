#!lua flags=allow-oom
-- Forget some occurrences of a schedule that was removed.
-- arrows: none
-- returns: the part of each id after the name and `@`
-- fails: never
-- repeat: no
-- include: indexes
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local id = ARGV[1]  -- string: the name of the schedule
local last = ARGV[2]  -- integer: ms since the epoch, of the last occurrence; those of a newer schedule with this name are later
local most = tonumber(ARGV[3])  -- integer: occurrences at most
local set = OCCURRENCES .. id
local occurrences = index('ZRANGE', set, '-inf', last, 'BYSCORE', 'LIMIT', 0, most)
if #occurrences > 0 then index('ZREM', set, unpack(occurrences)) end
return occurrences
