-- include: clock indexes
-- The process that runs a bucket's timer sleeps until the first entry is due, but never for more than 10 s
-- (buckets/timers/timer.py). So it must be notified of an entry that is due before the first one, unless the entry is due after
-- the timer's next look.
local LATER_MS = 11000

-- Whether the timer must be notified of an entry at a time, before the entry is written. (Asking for the first entry's score
-- would cost more: Redis writes each score with 17 digits.)
local function needs_alarm(key, at) return at < now_ms + LATER_MS and index('ZCOUNT', key, '-inf', whole(at)) == 0 end
