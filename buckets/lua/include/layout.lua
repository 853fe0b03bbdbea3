-- The numbers of the record (its layout stands in job.py).
local delayed, ready, reserved, dead, finished, deleted = 1, 2, 3, 4, 5, 6
local WORDS = {'delayed', 'ready', 'reserved', 'dead', 'finished', 'deleted'}
local HEADER, DELIVERY = '>BBBBBBI6I6I6I4HI4', '>HI3BI7'
local SHORT, LONG = 34, 47  -- bytes of a header: never popped, popped
local OPTIONAL, HOURLY = 16, 32
local TAG_TTL, TAG_RETENTION, TAG_BACKOFF, TAG_TTR, TAG_WORKER, TAG_REASON = 1, 2, 3, 4, 5, 6
local DEFAULT_RETENTION = 60000
