#!lua flags=allow-oom
-- The jobs are done.
-- arrows: reserved -> finished, delayed -> finished, ready -> finished, dead -> finished
-- returns: a list, for each job `finished`
-- fails: for a job, in its place in the list: NOT_FOUND [state], NOT_RESERVED state, STALE_LEASE state
-- repeat: yes
-- include: time layout index plan plain long_way layout record moves
local meta = KEYS[1]  -- hash: the shard's settings
local never = KEYS[2]  -- none: declared, never there
local now = ARGV[1]  -- integer: us since the epoch, or empty for Redis's clock
local jobs = {unpack(ARGV, 2)}  -- strings: id, lease or empty, … No id twice.

local function finish(id, lease)
  local job = read_job(id)
  if not job then return redis.error_reply('NOT_FOUND ') end
  local word = WORDS[job.state]
  if job.state == finished then return word end
  if job.state == deleted then return redis.error_reply('NOT_FOUND ' .. word) end
  -- A late worker's finish holds: the job was done, even if its lease ran out. One that nobody ever had was not.
  if job.deliveries == 0 then return redis.error_reply('NOT_RESERVED ' .. word) end
  if lease ~= '' and tonumber(lease) ~= job.lease then return redis.error_reply('STALE_LEASE ' .. word) end
  entomb(job, finished)
  return 'finished'
end

return finish
end  -- of the long way

-- Where a tombstone of this retention ends: in its header, and for Redis.
local ends = {}
local function end_after(retention)
  local found = ends[retention] or {header = struct.pack('>I6', now_ms + retention), px = whole(retention)}
  ends[retention] = found
  return found
end

-- A reserved job that is plain; nil for every other.
local done = {}  -- how many of a topic
local function finish_plain(id, lease)
  local key = JOB .. id
  local raw = redis.pcall('GETRANGE', key, '0', '127')
  local last, _, _, at_bucket, retention = plain(raw, reserved, LONG)
  if not last then return nil end
  local deliveries, _, newest = struct.unpack('>I3BI7', raw, 37)
  if deliveries == 0 or (lease ~= '' and tonumber(lease) ~= newest) then return nil end
  local topic, out = string.sub(raw, LONG + 1, last), under(plan.out, at_bucket)
  out[#out + 1] = id
  done[topic] = (done[topic] or 0) + 1
  if retention > 0 then
    local over = end_after(retention)
    append(plan.tombs, key, string.sub(raw, 1, 2) .. string.char(finished) .. string.sub(raw, 4, 18) .. over.header
      .. string.sub(raw, 25, last), over.px)
  else
    plan.gone[#plan.gone + 1] = key
  end
  return 'finished'
end

local results, finish = {}, nil
for at = 1, #jobs, 2 do
  local result = finish_plain(jobs[at], jobs[at + 1])
  if not result then
    finish = finish or long_way()
    result = finish(jobs[at], jobs[at + 1])
  end
  results[#results + 1] = result
end
for topic, n in pairs(done) do
  count(topic, 'reserved', -n)
  count(topic, 'finished', n)
end
commit()
return results
