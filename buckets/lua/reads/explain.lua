#!lua flags=no-writes
-- Gather what `jobqueue explain` needs to know about a job; the work is bounded, whatever Redis holds.
-- arrows: none
-- returns: {now in us, events, found, record, name, value, …}: how many entries of events are kept (0 if events are off); 1
--   for a job or its tombstone, 2 for an unreadable record, 3 for a job that was set aside, 0 for none; its record up to the
--   body; and depending on its state: `timer`, the token of the instance that runs the timer of its bucket, or empty;
--   `listed`, 1 if the bucket or a slice has the job, else 0; `behind`, how many of the bucket's entries are due with it or
--   earlier; `paused`, us until its topic resumes (-1 if it is not paused, -2 if only an explicit resume ends the pause);
--   `before`, how many entries are before it at its priority (-1 if it was not found among the first); `above`, how many are
--   at higher priorities; instead of these two, if it waits for its key, `ahead`, how many jobs of the key are before it or
--   hold the key, `holder`, one that holds it, and any `opens`, when the rate of the key allows its next delivery (ms since the
--   epoch); `newer`, how many dead letters of its topic died later
-- fails: never
-- repeat: yes
-- include: clock indexes record within pauses slices key_order
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local id = ARGV[2]  -- string: the job's id
local within = ARGV[3]  -- string: the topics that the caller may access (see within.lua), or empty for any
local most = tonumber(ARGV[4])  -- integer: entries of a ready list that are looked at

-- A key of another program counts as empty.
local function count_of(...)
  local reply = redis.pcall(...)
  return type(reply) == 'number' and reply or 0
end

local events = redis.pcall('HGET', meta, 'events')
local job, raw = read_front(id)
local kept = job and (job.state < finished or job.next > now_ms)
local found = job and (kept and reaches(job) and 1 or 0) or (raw ~= '' and 2) or 0
if found == 0 and count_of('HEXISTS', ASIDE, id) == 1 then found = 3 end
if found > 1 and within ~= '' then found = 0 end  -- its topic is unknown
local answer = {now_us, tonumber(type(events) == 'string' and events) or 0, found, ''}
if found ~= 1 then return answer end
answer[4] = string.sub(raw, 1, job.body_at - 1)

local function tell(name, value)
  answer[#answer + 1] = name
  answer[#answer + 1] = value
end

if job.state == delayed or job.state == reserved then
  local set, owner = BUCKET .. job.bucket, redis.pcall('GET', LOCK .. job.bucket)
  tell('timer', type(owner) == 'string' and owner or '')
  local listed = type(redis.pcall('ZSCORE', set, id)) == 'string'
    or (job.state == delayed and find_in_slices(job.bucket, job.next, id))
  tell('listed', listed and 1 or 0)
  if job.next <= now_ms then tell('behind', count_of('ZCOUNT', set, '-inf', whole(job.next))) end
end
if job.state == delayed or job.state == ready then
  paused(job.topic)
  tell('paused', opens)
end
local entry = job.key and blocked_entry(job)
if job.state == ready and entry and type(redis.pcall('ZSCORE', BLOCKED .. job.topic, entry)) == 'string' then
  local set, low, high = HOLDERS .. job.topic, range_of(job.key)
  tell('ahead', count_of('ZLEXCOUNT', set, low, high) + count_of('ZLEXCOUNT', BLOCKED .. job.topic, low, '(' .. entry))
  local holders, live = redis.pcall('ZRANGEBYLEX', set, low, high, 'LIMIT', '0', '100'), ''
  for _, each in ipairs(holders.err and {} or holders) do
    local other = live == '' and read_front(string.sub(each, #job.key + 2))
    if other and uses_key(other) then live = other.id end
  end
  tell('holder', live)
  low, high = pace_range(job.key)
  local pace = redis.pcall('ZRANGEBYLEX', set, low, high, 'LIMIT', '0', '1')
  local opens = not pace.err and pace[1] and tonumber(string.sub(pace[1], #low))
  if opens then tell('opens', opens) end
elseif job.state == ready then
  local place = redis.pcall('LPOS', READY .. job.priority .. ':' .. job.topic, string.format('%d:%s', job.number, id),
    'MAXLEN', most)
  tell('before', type(place) == 'number' and place or -1)
  local above = 0
  for priority = job.priority + 1, 9 do above = above + count_of('LLEN', READY .. priority .. ':' .. job.topic) end
  tell('above', above)
elseif job.state == dead then
  local rank = redis.pcall('ZREVRANK', DEAD .. job.topic, id)
  if type(rank) == 'number' then tell('newer', rank) end
end
return answer
