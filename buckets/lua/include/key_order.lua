-- How the sets of by_key.lua name jobs, and which jobs they hold.
-- Whether a job in this state holds its key or is blocked. A delayed job does only if it was delivered, and comes back.
local function uses_key(job)
  return job.state == ready or job.state == reserved or (job.state == delayed and job.deliveries > 0)
end

local function holder(job) return job.key .. '@' .. job.id end

-- The order is the due time, then that of the adds: jobs that were created in the same ms are in the order in which the topic's
-- jobs were counted. Its parts have as many digits as the largest values.
local function blocked_entry(job)
  return job.key .. string.format('@%015d%015d%010d:', job.due, job.created, job.order) .. job.id
end

-- The id in an entry of a blocked job; nil for an entry of another program.
local function id_of(entry) return string.match(entry, '^[^@]+@%d+:(.+)$') end

-- Whether a job, or nil, is the one of an entry of a topic.
local function is_blocked_as(job, topic, entry)
  return job and job.state == ready and job.topic == topic and job.key and blocked_entry(job) == entry
end

-- Whether a job comes before another of its key.
local function runs_before(job, other)
  if job.due ~= other.due then return job.due < other.due end
  if job.created ~= other.created then return job.created < other.created end
  return job.order < other.order
end

-- The range of a key's entries in the order of members: no key contains an `@`, and no id a `|`, which comes after all of
-- their characters.
local PACE = '|'
local function range_of(key) return '[' .. key .. '@', '(' .. key .. '@' .. PACE end
local function pace_range(key) return '[' .. key .. '@' .. PACE, '(' .. key .. 'A' end

-- The entry in a bucket for the time at which a key with a rate may have its next delivery; and the topic and the key of it.
local function pace_entry(topic, key) return PACE .. topic .. '@' .. key end
local function paced_by(entry) return string.match(entry, '^|(.+)@([^@]+)$') end
