-- include: clock planned_writes record moves optional_fields pending_job within append
-- Changing a delayed or ready job. A ready job keeps its place unless its priority changes.
local function changed_rest(job, raw, ttl, body)
  local block = ttl and with_optional(job, TAG_TTL, struct.pack('>I6', ttl))
    or string.sub(raw, job.header + #job.topic + 1, job.body_at - 1)
  return head_of(job, raw) .. block .. (body or string.sub(raw, job.body_at))
end

-- Arguments that are nil leave their fields unchanged.
local function change_job(id, delay, due, priority, ttl, body)
  local job, raw = read_job(id, true)
  local refusal = not_pending(job and reaches(job) and job)
  if refusal then return refusal end
  if job.state == ready and (delay or due) then return redis.error_reply('TOO_LATE ready') end
  local rest = (body or ttl) and changed_rest(job, raw, ttl, body)
  -- A pop drops the entry of a ready job whose ttl is over; with a new ttl the job lives on, and pops must find it again.
  local revived = ttl and job.state == ready and job.ttl and job.due + job.ttl <= now_ms
  local moves = job.state == delayed or revived or (priority and priority ~= job.priority)
  if moves then leave(job) end
  -- A job with a new time, or newly ready, no longer shows when its last lease ended.
  if delay or due or (moves and job.state == ready) then job.cause = 0 end
  job.priority, job.ttl = priority or job.priority, ttl or job.ttl
  if delay or due then
    job.due = math.max(due or (delay == 0 and now_ms or from_ms) + delay, now_ms)
    job.next = job.due
    if job.due <= now_ms then job.state = ready end
  end
  if moves then
    enter(job)
  elseif job.ttl then
    schedule(job)
  end
  if rest then
    append(plan.records, JOB .. job.id, header(job) .. rest)
  else
    append(plan.headers, JOB .. job.id, header(job))
  end
  tell(job, rest, body)
  commit(body and VERB_REWRITE or VERB_UPDATE)
  return {WORDS[job.state], job.due}
end
