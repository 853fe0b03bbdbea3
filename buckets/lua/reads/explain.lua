#!lua flags=no-writes
-- Gather what explains where a job stands, for `jobqueue explain`: bounded work, whatever Redis holds.
-- arrows: none
-- returns: {now in us, events, found, record, name, value, …}: how many entries of events are kept (0: none); 1 for a job or its
--   tombstone, 2 for one that cannot be read, 3 for one that was set aside, 0 for none; its record up to the body; what its
--   state asks for: `timer`, who runs the timer of its bucket, or nothing; `listed`, whether the bucket has it; `behind`, the
--   bucket's entries that are due with it or before; `paused`, us until its topic resumes (-1: it is not paused, -2: only when
--   resumed); `before`, the entries before it at its priority (-1: it was not found among the first); `above`, those at higher
--   ones; `newer`, the dead letters of its topic that died later
-- fails: never
-- repeat: yes
-- include: clock indexes record within pauses
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local id = ARGV[2]  -- string: the job
local within = ARGV[3]  -- string: the topics that the caller reaches (see within.lua); empty: any
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
if found > 1 and within ~= '' then found = 0 end  -- nobody knows its topic
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
  tell('listed', type(redis.pcall('ZSCORE', set, id)) == 'string' and 1 or 0)
  if job.next <= now_ms then tell('behind', count_of('ZCOUNT', set, '-inf', whole(job.next))) end
end
if job.state == delayed or job.state == ready then
  paused(job.topic)
  tell('paused', opens)
end
if job.state == ready then
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
