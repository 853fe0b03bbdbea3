#!lua flags=no-writes
-- Look at delayed, reserved or dead jobs, the earliest first over all buckets.
-- arrows: none
-- returns: {more, at, bucket, id, job, record, job, record, …}: 1 when there may be more behind the place (at, bucket,
--   id) that was looked at last; the jobs with their records, or empty ones
-- fails: never
-- repeat: yes
-- include: time layout index record look merge
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local topic = ARGV[2]  -- string: whose jobs
local state = tonumber(ARGV[3])  -- integer: in which state
local buckets = tonumber(ARGV[4])  -- integer: how many there are
local after_at = ARGV[5]  -- number: begin behind this time, or empty for the beginning
local after_bucket = tonumber(ARGV[6])  -- integer: and in it behind this bucket
local after_id = ARGV[7]  -- string: and in that behind this id
local want = tonumber(ARGV[8])  -- integer: jobs at most
local room = tonumber(ARGV[9])  -- integer: bytes of records at most, one always; empty for the ids alone
local sources = {}
for number = 0, state == dead and 0 or buckets - 1 do
  sources[number + 1] = open_source(number, state == dead and DEAD .. topic or BUCKET .. number)
end

local answer = {0, after_at, after_bucket, after_id}
local function take(id)
  if not look(id, state, topic) then return end
  local raw = room and redis.call('GET', JOB .. id) or ''
  want, room = want - 1, room and room - #raw
  answer[#answer + 1] = id
  answer[#answer + 1] = raw
end

local looked = 0
local source, id, time = next_entry(sources)
while source and looked < LOOKED and want > 0 and not (room and room <= 0) do
  take(id)
  answer[2], answer[3], answer[4] = time, source.number, id
  looked = looked + 1
  step(source)
  source, id, time = next_entry(sources)
end
answer[1] = source and 1 or 0
return answer
