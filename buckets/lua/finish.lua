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

-- What reserved jobs of a kind have in common when they end; nil for those that are not plain.
local function ending(front)
  local last, _, _, at_bucket, retention = plain(front, reserved, LONG)
  if not last then return nil end
  return {counts = under(plan.counts, string.sub(front, LONG + 1, last)), out = under(plan.out, at_bucket), last = last,
    lead = string.sub(front, 1, 2) .. string.char(finished), forgotten_at = struct.pack('>I6', now_ms + retention),
    lasts = retention > 0 and whole(retention)}
end

-- Those of one lease and one time; nil for those that nobody ever had.
local function ending_of(kind, front)
  local deliveries, _, newest = struct.unpack('>I3BI7', front, 37)
  if deliveries == 0 then return nil end
  kind.lease = newest
  kind.tomb = kind.lasts
    and kind.lead .. string.sub(front, 4, 18) .. kind.forgotten_at .. string.sub(front, 25, kind.last)
  return kind
end

-- End a reserved job; nil when it takes the long way.
local function finish_plain(id, lease)
  local key = JOB .. id
  local kind = kind_of(redis.pcall('GETRANGE', key, '0', '127'), ending, ending_of)
  if not kind or (lease ~= '' and tonumber(lease) ~= kind.lease) then return nil end
  tally(kind.counts, 'reserved', -1)
  tally(kind.counts, 'finished', 1)
  kind.out[#kind.out + 1] = id
  if kind.tomb then
    append(plan.tombs, key, kind.tomb, kind.lasts)
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
commit()
return results
