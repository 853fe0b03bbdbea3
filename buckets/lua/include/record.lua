-- include: clock indexes
-- The record (buckets/record.py documents its layout). A job in Lua is a table of the header's fields, its id, its topic, and
-- the optional fields that a move needs.
local function header(job)
  local flags = job.state + (job.keeps_body and BODY or 0) + (job.optional and OPTIONAL or 0) + (job.hourly and HOURLY or 0)
    + (job.holds and HOLDS or 0) + (job.copy and COPY or 0)
  local first = struct.pack(HEADER, VERSION, job.header, flags, job.priority + 16 * job.cause, job.bucket, #job.topic,
    job.created, job.due, job.next, job.ttr, job.tries, job.number)
  if job.header == SHORT then return first end
  return first .. struct.pack(DELIVERY, job.attempts, job.deliveries, job.step, job.lease)
end

-- Read the optional block: a table of its fields by tag.
local function optional_fields(block)
  local fields, at = {}, 1
  while at < #block do
    local tag, size = struct.unpack('>BH', block, at)
    fields[tag] = string.sub(block, at + 3, at + 2 + size)
    at = at + 3 + size
  end
  return fields
end

-- Raises an error for a malformed block.
local function apply_optional(job, raw, at)
  local size = struct.unpack('>H', raw, at)
  local fields = optional_fields(string.sub(raw, at + 2, at + 1 + size))
  local ladder = fields[TAG_BACKOFF]
  assert(not ladder or (#ladder > 0 and #ladder % 6 == 0))
  job.optional = fields
  job.body_at = at + 2 + size
  job.ttl = fields[TAG_TTL] and struct.unpack('>I6', fields[TAG_TTL])
  job.retention = fields[TAG_RETENTION] and struct.unpack('>I4', fields[TAG_RETENTION])
  job.own_ttr = fields[TAG_TTR] and struct.unpack('>I4', fields[TAG_TTR])
  local key = fields[TAG_KEY]
  if key then
    local is_leased = (job.own_ttr or job.ttr) > 0
    job.most, job.gap, job.order = struct.unpack('>HI4I4', key)
    if not is_leased then job.most = 0 end  -- it waits for the rate of its key only
    if is_leased or job.gap > 0 then job.key = string.sub(key, BEFORE_KEY + 1) end
  end
end

-- The job that a string holds, or nil if the string is not a record of ours; the second value is how many bytes must be read
-- if the string is too short.
local function parse(id, raw)
  if #raw < SHORT then return nil end
  local version, length, flags, priority, bucket, topic_length, created, due, next_ms, ttr, tries, number =
    struct.unpack(HEADER, raw)
  local state = flags % 8
  if version ~= VERSION or (length < LONG and length ~= SHORT) or state < delayed or state > deleted or topic_length == 0
    or priority % 16 > 9 then
    return nil
  end
  local topic_end = length + topic_length
  if #raw < topic_end then return nil, topic_end + 2 end
  local attempts, deliveries, step, lease = 0, 0, 0, 0
  if length >= LONG then attempts, deliveries, step, lease = struct.unpack(DELIVERY, raw, SHORT + 1) end
  local job = {id = id, header = length, state = state, keeps_body = flags % 16 >= BODY, hourly = flags % 64 >= HOURLY,
    holds = flags % 128 >= HOLDS, copy = flags >= COPY,
    priority = priority % 16,
    cause = math.floor(priority / 16), bucket = bucket, created = created, due = due, next = next_ms, ttr = ttr,
    tries = tries, attempts = attempts, deliveries = deliveries, step = step, number = number, lease = lease,
    topic = string.sub(raw, length + 1, topic_end), body_at = topic_end + 1, retention = DEFAULT_RETENTION,
    was = state, since = next_ms}  -- for its event: the state and `next` before the move
  if flags % 32 >= OPTIONAL then
    if #raw < topic_end + 2 then return nil, topic_end + 2 end
    local block_end = topic_end + 2 + struct.unpack('>H', raw, topic_end + 1)
    if #raw < block_end then return nil, block_end end
    if not pcall(apply_optional, job, raw, topic_end + 1) then return nil end
    job.retention = job.retention or DEFAULT_RETENTION
  end
  return job
end

-- An unreadable record must not block anything: it is kept under its id for the operator, and reported.
local function set_aside(id)
  local raw = redis.pcall('GET', JOB .. id)
  if type(raw) ~= 'string' then raw = redis.call('DUMP', JOB .. id) end
  keep_aside(id, raw)
  redis.call('UNLINK', JOB .. id)
  -- The event has an entry of its own, without events.lua: it is rare, and scripts that only read include this file too.
  local entries_kept = tonumber(redis.pcall('HGET', meta, 'events'))
  if entries_kept then
    local head = struct.pack('>BBBI7', EVENT_VERSION, VERB_ASIDE, 0, now_us)
    index('XADD', EVENTS, 'MAXLEN', '~', whole(entries_kept), '*', 'm', head, id, string.rep('\0', 7))
  end
  redis.call('SPUBLISH', BELL, 'aside ' .. id)
end

-- The job of an id, and as much of its record as is needed to read the job. Reading a page of large bodies would block Redis
-- for 0.1 s.
local function read_front(id)
  local raw, size = redis.pcall('GETRANGE', JOB .. id, '0', '127'), 128
  local job, wanted
  if type(raw) == 'string' then job, wanted = parse(id, raw) end
  while wanted and #raw == size do
    size = wanted
    raw = redis.call('GETRANGE', JOB .. id, '0', string.format('%d', size - 1))
    job, wanted = parse(id, raw)
  end
  return job, raw
end

-- The job that was read and its record; nil for a tombstone whose time is over, even if Redis has not removed it yet. If no
-- job could be parsed, the record is set aside.
local function judge(id, job, raw)
  if not job then
    set_aside(id)
    return nil
  end
  if job.state >= finished and job.next <= now_ms then return nil end
  return job, raw
end

-- The job of an id and its raw record, or nil if there is none. Without `whole`, the body is usually not read.
local function read_job(id, whole)
  if not whole then
    local job, raw = read_front(id)
    if raw == '' then return nil end
    return judge(id, job, raw)
  end
  local raw = redis.pcall('GET', JOB .. id)
  if not raw then return nil end
  return judge(id, type(raw) == 'string' and parse(id, raw), raw)
end
