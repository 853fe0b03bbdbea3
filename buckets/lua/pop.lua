#!lua flags=allow-oom
-- Reserve ready jobs of the first topics that have some, the higher priorities first.
-- arrows: ready -> reserved, ready -> finished
-- returns: {left, more, opens, id, record, id, record, …}: ready jobs left in the last topic popped; 1 when stale
--   entries or large bodies stopped the search before its end; us until the first of the paused topics is open again, -1 for none; the
--   jobs as they are now
-- fails: never
-- repeat: no
-- include: time layout index plan plain first_delivery long_way layout record moves optional
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local bucket = tonumber(ARGV[2])  -- integer: where the leases go
local want = tonumber(ARGV[3])  -- integer: jobs at most
local room = tonumber(ARGV[4])  -- integer: bytes of records at most
local always = tonumber(ARGV[5])  -- integer: jobs that are taken whatever their size
local ttr = tonumber(ARGV[6])  -- integer: ms, for these deliveries; empty for each job's own
local workers = ARGV[7]  -- string: for whom, in their order: how many jobs (2 bytes), bytes of name (2), name; all have one or none
local topics = {unpack(ARGV, 8)}  -- strings: in the order of trying

-- The ready job that an entry stands for, or nil when the entry is of an earlier life, or the job's ttl is over
-- (its timer buries it).
local function live(id, number, raw)
  local job = judge(id, type(raw) == 'string' and parse(id, raw), raw)
  if not job or job.state ~= ready or job.number ~= number then return nil end
  if job.ttl and job.due + job.ttl <= now_ms then return nil end
  return job
end

-- The part of the record behind its topic, with the fields that this delivery sets; nil when it sets none.
local function changed_tail(job, raw, lease_ttr)
  local block
  if lease_ttr ~= (job.own_ttr or job.ttr) and not job.own_ttr then
    block = with_optional(job, TAG_TTR, struct.pack('>I4', job.ttr))
  end
  if worker ~= '' then block = with_optional(job, TAG_WORKER, worker) end
  return block and block .. string.sub(raw, job.body_at)
end

-- Returns the record as it is now.
local function deliver(job, raw)
  local lease_ttr = ttr or job.own_ttr or job.ttr
  local tail = lease_ttr > 0 and changed_tail(job, raw, lease_ttr)
  local rest = head_of(job, raw) .. (tail or string.sub(raw, job.header + #job.topic + 1))
  local changed = tail or job.header == SHORT
  job.header = math.max(job.header, LONG)
  job.attempts = math.min(job.attempts + 1, 65535)
  job.deliveries = math.min(job.deliveries + 1, 16777215)
  job.lease = math.max(job.lease + 1, now_us)
  count(job.topic, 'delivered', 1)
  if job.deliveries > 1 then count(job.topic, 'redelivered', 1) end
  job.ttr = lease_ttr
  if lease_ttr == 0 then
    local length, optional = job.header, job.optional
    entomb(job, finished)
    job.header, job.optional = length, optional
  else
    if not job.ttl then job.bucket = bucket end
    move(job, reserved, from_ms + lease_ttr, changed and rest)
  end
  return header(job) .. rest
end

return live, deliver
end  -- of the long way

local MOST = want + 500  -- entries looked at: 200,000 stale ones in one go would hold Redis for 0.2 s
local ENOUGH = room - 262144  -- room at which it stops: 8 MiB in one go would hold Redis for 0.1 s
local looked, found, taken, seen, answer = 0, 0, {}, {}, {0, 0, -1}
local full, large = false, false

local live, deliver

-- What an entry stands for, if it is valid: the id, the record, and either the record to come with its kind, or the job.
local live, deliver
local function look(entry)
  local number, id = string.match(entry, '^(%d+):(.+)$')
  if not id or seen[id] then return nil end
  local raw = redis.pcall('GET', JOB .. id)
  if not raw then return nil end
  number = tonumber(number)
  local record, kind = deliver_first(raw, number)
  if record then return id, raw, record, kind end
  if not live then live, deliver = long_way() end
  local job = live(id, number, raw)
  if job then return id, raw, nil, nil, job end
end

local function hand_over(id, record, kind)
  tally(kind.counts, 'ready', -1)
  tally(kind.counts, 'reserved', 1)
  tally(kind.counts, 'delivered', 1)
  append(under(plan.bucket, bucket), kind.score, id)
  plan.first[bucket] = math.min(plan.first[bucket] or kind.over, kind.over)
  append(plan.records, JOB .. id, record)
  return record
end

local function take(list)
  local at = 0
  while found < want and looked < MOST and not full do
    local entries = index('LRANGE', list, whole(at), whole(at + want - found - 1))
    if #entries == 0 then break end
    for _, entry in ipairs(entries) do
      turn_to(found + 1)
      local id, raw, record, kind, job = look(entry)
      if id and found >= always and #raw > room then
        full = true
        break
      end
      at, looked = at + 1, looked + 1
      if id then
        found, room, seen[id] = found + 1, room - #raw, true
        append(answer, id, kind and hand_over(id, record, kind) or deliver(job, raw))
        if room <= ENOUGH then
          full, large = true, true
          break
        end
      end
    end
  end
  taken[list] = at
end

-- Most jobs have the priority 4: one look tells that there are none above, and saves five.
local function take_topic(topic)
  local lists = {}
  for priority = 9, 0, -1 do lists[10 - priority] = READY .. priority .. ':' .. topic end
  for at = redis.call('EXISTS', unpack(lists, 1, 5)) == 0 and 6 or 1, 10 do take(lists[at]) end
end

-- Whether pops of a topic find nothing now; a key that holds no time is no pause.
local function paused(topic)
  local until_ms = redis.pcall('GET', PAUSED .. topic)
  until_ms = type(until_ms) == 'string' and #until_ms < 16 and tonumber(string.match(until_ms, '^%d+$'))
  if not until_ms or (until_ms ~= 0 and until_ms <= now_ms) then return false end
  local opens = until_ms * 1000 - now_us
  if until_ms > 0 and (answer[3] < 0 or opens < answer[3]) then answer[3] = opens end
  return true
end

local last
for _, topic in ipairs(topics) do
  if found < want and looked < MOST and not full and not paused(topic) then
    last = topic
    take_topic(topic)
  end
end
commit()
for list, n in pairs(taken) do
  if n > 0 then index('LPOP', list, n) end
end
answer[1] = plan.left[last] or last and tonumber(index('HGET', COUNTS .. last, 'ready')) or 0
answer[2] = (large or (found == 0 and looked >= MOST)) and 1 or 0
return answer
