#!lua flags=allow-oom
-- Export jobs and tombstones to another Redis: they are removed here, and kept in a hash until that Redis has them.
-- arrows: delayed -> deleted, ready -> deleted, dead -> deleted
-- returns: {looked, staying, hash, id, record, id, record, …}: how many of the entries or ids were looked at, and how many
--   of their jobs stay, because they are reserved or others of their key must leave first; the hash; and what was exported
-- fails: never
-- repeat: yes
-- include: clock indexes planned_writes record moves append by_key key_order
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, but the key never exists
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local by = ARGV[2]  -- string: the instance and any actor, recorded in events
local batch = ARGV[3]  -- string: hexadecimal digits, unique to this call
local front = ARGV[4]  -- string: priority:topic of the list whose first jobs are exported, or empty or `blocked` for `ids`
local page = tonumber(ARGV[5])  -- integer: entries of a list at most
local room = tonumber(ARGV[6])  -- integer: bytes of records at most, but always one record
local ids = {unpack(ARGV, 7)}  -- strings: the ids of the jobs, without duplicates
-- Jobs that wait for their keys are exported in their order, so only if `front` is `blocked`.
local list, hash = READY .. front, EXPORTED .. whole(now_ms) .. ':' .. batch
local is_list = string.find(front, ':', 1, true)
local kept, looked, others, seen = {}, 0, 0, {}
local left = {}  -- entries of jobs that stay

-- Whether a job must stay here: otherwise the jobs of a key could run here and there at the same time, or in another order. A
-- job that holds its key leaves unless another that holds it is reserved; the others follow when no job here holds the key.
local holders_by_key = {}
local function stays(job)
  if job.state == reserved then return true end
  if job.state > reserved or not job.key then return false end
  local holds = uses_key(job) and by_key().holds(job)
  if front == '' and job.state == ready and not holds then return true end
  local holders = under(holders_by_key, job.topic)
  if not holders[job.key] then
    holders[job.key] = {}
    for _, entry in ipairs(index('ZRANGEBYLEX', HOLDERS .. job.topic, range_of(job.key))) do
      local other = read_job(string.sub(entry, #job.key + 2))
      if other and uses_key(other) then append(holders[job.key], other) end
    end
  end
  for _, other in ipairs(holders[job.key]) do
    if other.id ~= job.id and not seen[other.id] and (other.state == reserved or not holds) then return true end
  end
  return false
end

-- Take a job out of the indexes. Its key stays busy, so that the next job is not delivered here while this one runs there; when
-- the migration ends, remove_orphans.lua frees the key.
local function take_out(job)
  leave(job)
  if not job.key or job.state > reserved then return end
  local key = by_key().plan_of(job.topic, job.key)
  key.out[job.id] = nil
  if not next(key.into) and by_key().count_holders(job.topic, job.key) == 0 then key.into[job.id] = job end
end

-- Plan the export of a job or tombstone.
local function export(job)
  local raw = redis.call('GET', JOB .. job.id)
  seen[job.id], room = true, room - #raw
  append(kept, job.id, raw)
  plan.gone[#plan.gone + 1] = JOB .. job.id
  if job.state >= finished then return end
  take_out(job)
  count(job.topic, 'deleted', 1)
  count(job.topic, 'moved', 1)
  job.state, job.header, job.optional = deleted, math.min(job.header, LONG), nil
  tell(job)
end

-- The job of an entry of the list, or of an id.
local function job_of(entry)
  if not is_list then return read_job(entry) end
  local number, id = string.match(entry, '^(%d+):(.+)$')
  local job = id and not seen[id] and read_job(id)
  return job and job.state == ready and job.number == tonumber(number) and job
end

for _, entry in ipairs(is_list and index('LRANGE', list, 0, page - 1) or ids) do
  local job = job_of(entry)
  if job and stays(job) then
    others = others + 1
    if is_list then left[#left + 1] = entry end
  elseif job then
    export(job)
  end
  looked = looked + 1
  if room <= 0 then break end
end
if #kept > 0 then redis.call('HSET', hash, unpack(kept)) end
commit(VERB_EXPORT)
if is_list and looked > 0 then index('LTRIM', list, looked, -1) end
if #left > 0 then index('RPUSH', list, unpack(left)) end
return {looked, others, hash, unpack(kept)}
