"""The parts of answers: how a job, a figure or an error looks on the wire."""

from __future__ import annotations

from typing import Any

import orjson
import structlog

from buckets import Added, Cause, Job, NewJob, Polling, Pollings, State, Tag, Topic, TopicStatus
from buckets.access.actions import OF, Action
from buckets.errors import JobQueueError, Refused, TryLater
from jobqueue.errors import STATUS, BadRequest, Forbidden

log = structlog.get_logger()

Answer = dict[str, Any]

NOT_KNOWN = "not known"
"""The outcome of an action that was cut off: it may have been done, or a part of it."""
_RESERVED = State.RESERVED  # looking up an enum member is slow


def success(**parts: Any) -> Answer:
    """The answer to a command that was carried out."""
    return {"success": True, **parts}


def failure(error: Exception, job_id: str | None = None) -> Answer:
    """The answer that reports an error. An unexpected exception is logged and reported as INTERNAL."""
    if not isinstance(error, JobQueueError) or error.code == "INTERNAL" or error.code not in STATUS:
        log.error("command.failed", exc_info=error)
        return {"success": False, "id": job_id, "error": "internal error; the service logged it", "code": "INTERNAL"}
    answer: Answer = {"success": False, "id": job_id or error.job_id, "error": error.message, "code": error.code}
    if isinstance(error, BadRequest) and error.field:
        answer["field"] = error.field
    if isinstance(error, Forbidden):
        answer |= {name: value for name in ("right", "topic") if (value := getattr(error, name))}
    if isinstance(error, Refused) and error.state:
        answer["state"] = error.state
    if isinstance(error, TryLater):
        answer["retry_after"] = error.retry_after
    return answer


def kept(job_id: str | None, added: Added) -> Answer:
    """The answer to an add."""
    result, state, due = added
    return {"success": True, "id": job_id, "state": state, "due": due / 1000, "result": result}


def kept_copy(job: NewJob, added: Added) -> Answer:
    """One of the jobs of an add to a virtual topic, and the result of adding it."""
    return {
        "topic": job.topic,
        "id": job.id,
        "state": added.state,
        "due": added.due / 1000,
        "result": added.result,
    }


def _body(job: Job) -> orjson.Fragment | None:
    """A job's body, byte for byte as it was added; a tombstone mostly has none."""
    return orjson.Fragment(job.body) if job.body else None


def _json(raw: bytes | None) -> orjson.Fragment | None:
    return orjson.Fragment(raw) if raw else None


def handed_out(job: Job) -> Answer:
    """A job as a worker gets it."""
    kind, body = job.kind, job.body
    reserved = kind.state is _RESERVED
    answer = {
        "id": job.id,
        "value": orjson.Fragment(body) if body else None,
        "state": "reserved" if reserved else kind.state.word,
        "topic": kind.topic,
        "lease": job.lease,
        "attempt": kind.attempts,
        "tries": kind.tries,
        "due": job.due / 1000,
        "ttr": kind.ttr / 1000 if reserved else 0,
        "headers": _json(kind.optional.get(Tag.HEADERS)) if kind.optional else None,
        "created": job.created / 1000,
    }
    if kind.deliveries > 1:
        answer["ready"] = in_seconds(job.ready_again)
    return answer


def in_seconds(ms: int | None) -> float | None:
    """Milliseconds in the unit of the wire."""
    return None if ms is None else ms / 1000


def paused(until_ms: int | None) -> Answer:
    """That a topic is paused, and until when; nothing if it is not."""
    return {} if until_ms is None else {"paused": True, "paused_until": in_seconds(until_ms or None)}


def unknown(known: bool) -> Answer:
    """That a topic does not exist; nothing if it does."""
    return {} if known else {"known": False}


def why_empty(status: TopicStatus) -> Answer:
    """Why a pop found no job, besides that none is ready: no topic exists, or some are paused."""
    ends = {topic: in_seconds(until or None) for topic, until in status.paused.items()}
    return unknown(status.known) | ({"paused": ends} if ends else {})


def listed(topic: Topic, workers: int, max_pending: int, max_dead: int) -> Answer:
    """A topic in a listing; `paused_until` null: until it is resumed."""
    answer: Answer = {
        "topic": topic.name,
        "counts": topic.counts,
        "oldest_ready_s": in_seconds(topic.oldest_ready_ms),
        "workers": workers,
        "paused": topic.paused_until is not None,
    }
    if topic.paused_until is not None:
        answer["paused_until"] = in_seconds(topic.paused_until or None)
    return answer | {name: most for name, most in (("max_pending", max_pending), ("max_dead", max_dead)) if most}


def polling(pollings: Pollings) -> Answer:
    """The workers that poll."""
    return {
        "workers": [_polling(row) for row in pollings.rows],
        "others": {"parked": pollings.other_waiting, "jobs": pollings.other_jobs},
    }


def _polling(row: Polling) -> Answer:
    return {
        "worker": row.worker,
        "topics": row.topics,
        "instance": row.instance,
        "client": row.client,
        "since": row.since / 1000,
        "state": "parked" if row.waiting else "busy" if row.jobs else "idle",
        "jobs": row.jobs,
        "last_pop": row.last / 1000,
    }


def logged(action: Action) -> Answer:
    """An action in the log."""
    outcome = dict({"code": NOT_KNOWN, "done": 0} if action.outcome is None else action.outcome)
    outcome.pop(OF, None)
    return {"at": action.at_ms / 1000, **action.begun, "outcome": outcome.pop("code", None), **outcome}


def died(job: Job) -> Answer:
    """A dead letter in short."""
    cause, reason = job.cause.name.lower(), job.text(Tag.REASON)
    return {"id": job.id, "cause": cause, "reason": reason, "dead_since": in_seconds(job.next)}


def described(job: Job, *, with_body: bool) -> Answer:
    """Everything about a job, times in unix seconds and spans in seconds."""
    answer: Answer = {
        "id": job.id,
        "state": job.state.word,
        "topic": job.topic,
        **({"value": _body(job)} if with_body else {}),
        "created": job.created / 1000,
        "due": job.due / 1000,
        "priority": job.priority,
        "ttr": job.own_ttr / 1000,
        "ttl": in_seconds(job.ttl),
        "retention": job.retention / 1000,
        "tries": job.tries,
        "attempt": job.attempts,
        "deliveries": job.deliveries,
        "backoff": [delay / 1000 for delay in job.backoff],
        "headers": _json(job.optional.get(Tag.HEADERS)),
        "tags": _json(job.optional.get(Tag.TAGS)),
    }
    if job.deliveries:
        answer["lease"] = job.lease
        answer["worker"] = job.text(Tag.WORKER)
        answer["reason"] = job.text(Tag.REASON)
    ended = job.lease_ended
    if ended is not None:
        answer["reason"], answer["ended"] = "lease ended", ended / 1000
    elif job.cause not in (Cause.NONE, Cause.LEASE):
        answer["cause"] = job.cause.name.lower()
    # `next` depends on the state: until when the job waits or is remembered, or since when it is ready or dead.
    until = {State.READY: "ready_since", State.DEAD: "dead_since", State.RESERVED: "reserved_until"}
    answer[until.get(job.state, "until")] = job.next / 1000
    return answer
