-- include: clock record planned_writes moves optional_fields place by_key
-- argument: bucket ttr
-- The complete path of a delivery. The fast paths of pop.lua and due.lua write the first delivery of a simple job themselves.

-- The part of the record after its topic, with the fields that this delivery sets; nil if it sets none.
local function changed_tail(job, raw, lease_ttr, worker)
  local block
  if lease_ttr ~= (job.own_ttr or job.ttr) and not job.own_ttr then
    block = with_optional(job, TAG_TTR, struct.pack('>I4', job.ttr))
  end
  if worker ~= '' then block = with_optional(job, TAG_WORKER, worker) end
  return block and block .. string.sub(raw, job.body_at)
end

-- Deliver a job to a worker. Returns the record as it is now; if the job was delivered before, the record includes the time
-- at which the job became ready again.
local function deliver_job(job, raw, worker)
  local lease_ttr, since = ttr or job.own_ttr or job.ttr, job.state == ready and job.next or now_ms
  local tail = lease_ttr > 0 and changed_tail(job, raw, lease_ttr, worker)
  local head = head_of(job, raw)
  local rest = head .. (tail or string.sub(raw, job.header + #job.topic + 1))
  local changed = tail or job.header == SHORT
  job.header = math.max(job.header, LONG)
  job.attempts = math.min(job.attempts + 1, 65535)
  job.deliveries = math.min(job.deliveries + 1, 16777215)
  job.lease = math.max(job.lease + 1, now_us)
  count(job.topic, 'delivered', 1)
  if job.deliveries > 1 then
    count(job.topic, 'redelivered', 1)
    job.cause = 0  -- how the previous delivery ended
  end
  job.ttr = lease_ttr
  if job.key then by_key().note_delivery(job) end
  if lease_ttr == 0 then
    local length, optional, keeps_body = job.header, job.optional, job.keeps_body
    entomb(job, finished, rest)
    job.header, job.optional, job.keeps_body = length, optional, keeps_body
  else
    if not in_bucket(job) then job.bucket = bucket end
    move(job, reserved, from_ms + lease_ttr, changed and rest, not tail)
  end
  if job.deliveries == 1 then return header(job) .. rest end
  local block = with_optional(job, TAG_READY, struct.pack('>I6', since))
  return header(job) .. head .. block .. string.sub(raw, job.body_at)
end
