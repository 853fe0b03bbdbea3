"""The parts of answers: how a job, a figure, an error or the service looks on the wire."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import orjson
import structlog

from buckets import Added, Cause, Closed, Instance, Job, NewJob, Polling, Pollings, State, Tag, Topic, TopicStatus
from buckets.access import OF, Action
from buckets.errors import JobQueueError, NoBody, Refused, TryLater
from jobqueue.engine.figures import Found, Happened, Lateness, Outlook
from jobqueue.engine.schedules.definition import OPTIONS
from jobqueue.engine.schedules.scheduling import ScheduleView
from jobqueue.errors import STATUS, BadField, BadRequest, Forbidden
from jobqueue.metrics.process import LATENESS_S
from jobqueue.settings import TABLES, URLS, Loaded, Settings, TopicSettings

log = structlog.get_logger()

Answer = dict[str, Any]

NOT_KNOWN = "not known"
"""The outcome of an action that was cut off: all or part of it may have been done."""
_LARGEST = 5  # topics that a forecast names
_AT_ONCE = 100  # bins of figures that are written before other tasks get their turn
_RESERVED = State.RESERVED  # looking up an enum member is slow


def success(**parts: Any) -> Answer:
    """The answer to a command that was carried out."""
    return {"success": True, **parts}


def failure(error: Exception, job_id: str | None = None) -> Answer:
    """The answer that reports an error. An unexpected exception is logged and reported as INTERNAL."""
    if isinstance(error, NoBody):
        error = BadField(error.message, field="body")
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
    """A job's body, byte for byte as it was added, or None if it has no body, like most tombstones."""
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
    """Milliseconds as seconds, the unit of the wire; None stays None."""
    return None if ms is None else ms / 1000


def paused(until_ms: int | None) -> Answer:
    """The members that say that a topic is paused, and until when; none if it is not paused."""
    return {} if until_ms is None else {"paused": True, "paused_until": in_seconds(until_ms or None)}


def unknown(known: bool) -> Answer:
    """The member that says that a topic does not exist; none if it exists."""
    return {} if known else {"known": False}


def why_empty(status: TopicStatus, limited: Sequence[Closed] = ()) -> Answer:
    """Why a pop found no job, other than that none is ready: none of its topics exists, or some of them are paused or
    have reached a limit."""
    ends = {topic: in_seconds(until or None) for topic, until in status.paused.items()}
    first = min(limited, key=lambda each: each.opens_us, default=None)
    return (
        unknown(status.known)
        | ({"paused": ends} if ends else {})
        | (held_back(first.limit, first.opens_us) if first else {})
    )


def held_back(limit: str, opens_us: int) -> Answer:
    """The members that say that a limit holds ready jobs back, and in how many seconds the client should retry."""
    return {"limited": limit, "retry_after": -(-opens_us // 1000) / 1000}


def listed(topic: Topic, workers: int, max_pending: int, max_dead: int, rate: float, concurrency: int) -> Answer:
    """A topic in a listing. `paused_until` is null if the pause lasts until the topic is resumed."""
    answer: Answer = {
        "topic": topic.name,
        "counts": topic.counts,
        **({"blocked": topic.blocked} if topic.blocked else {}),
        "oldest_ready_s": in_seconds(topic.oldest_ready_ms),
        "workers": workers,
        "paused": topic.paused_until is not None,
    }
    if topic.paused_until is not None:
        answer["paused_until"] = in_seconds(topic.paused_until or None)
    limits = {"max_pending": max_pending, "max_dead": max_dead, "rate": rate, "concurrency": concurrency}
    return answer | {name: most for name, most in limits.items() if most}


def scheduled(view: ScheduleView, *, with_body: bool) -> Answer:
    """A schedule in a listing, with only those options that its definition sets."""
    schedule, definition, times = view
    options = {name: value for name in OPTIONS if (value := getattr(definition, name)) is not None}
    timing: Answer
    if definition.every is not None:
        timing = {"every": definition.every, "start": schedule.start / 1000}
    else:
        timing = {"cron": definition.cron, "zone": definition.zone}
    return {
        "name": schedule.name,
        "topic": definition.topic,
        **timing,
        **({"jitter": definition.jitter} if definition.jitter else {}),
        "catch_up": definition.catch_up,
        "overlap": definition.overlap,
        "paused": definition.paused,
        "next": [each / 1000 for each in times],
        "last": in_seconds(schedule.last or None),
        **options,
        **({"value": orjson.Fragment(bytes(definition.body))} if with_body else {}),
    }


async def outlook(topic: str | None, found: Outlook) -> Answer:
    """A forecast, with its bins in order of time. Like `past`, it pauses now and then for other tasks."""
    jobs, scheduled = found.jobs.bins, found.occurrences
    bins: list[Answer] = []
    for each in sorted(jobs.keys() | scheduled.keys()):
        begin, width = each.begin / 1000, each.width // 1000
        bins.append({"begin": begin, "width": width, "jobs": jobs[each], "scheduled": scheduled[each]})
        if len(bins) % _AT_ONCE == 0:
            await asyncio.sleep(0)
    return success(
        topic=topic,
        bins=bins,
        total=jobs.total(),
        later=found.jobs.later,
        scheduled_until=in_seconds(found.counted_until),
        topics=found.jobs.topics,
        left_out=found.jobs.left_out,
        largest=[{"topic": name, "jobs": number} for name, number in found.jobs.by_topic.most_common(_LARGEST)],
    )


async def past(topic: str | None, found: Found) -> Answer:
    """Figures over time, with their bins in order of time. It pauses now and then for other tasks, because there may be
    thousands of bins."""
    with_refusals, bins = topic is None, []
    for each in found.bins:
        bins.append(_happened(each, with_refusals=with_refusals))
        if len(bins) % _AT_ONCE == 0:
            await asyncio.sleep(0)
    return success(
        topic=topic,
        since=in_seconds(found.since),
        until=in_seconds(found.until),
        step=found.step_s,
        bounds=LATENESS_S,
        bins=bins,
        total=_happened(found.total, with_refusals=with_refusals),
        parked=found.parked,
    )


def _happened(span: Happened, *, with_refusals: bool) -> Answer:
    return {
        "begin": span.begin / 1000,
        "adds": span.adds,
        "deliveries": span.deliveries,
        "finishes": span.finishes,
        "deaths": span.deaths,
        **({"refusals": span.refusals} if with_refusals else {}),
        "due_to_ready": _lateness(span.due_to_ready),
        "due_to_delivered": _lateness(span.due_to_delivered),
    }


def _lateness(lateness: Lateness | None) -> Answer | None:
    return None if lateness is None else lateness._asdict()


def polling(pollings: Pollings) -> Answer:
    """The workers that poll."""
    return {
        "workers": [_polling(row) for row in pollings.rows],
        "others": {"parked": pollings.other_waiting, "jobs": pollings.other_jobs},
    }


def _polling(row: Polling) -> Answer:
    blocked = {"blocked": row.blocked} if row.blocked else {}
    return {
        "worker": row.worker,
        "topics": row.topics,
        "instance": row.instance,
        "client": row.client,
        "since": row.since / 1000,
        "state": "parked" if row.waiting else "busy" if row.jobs else "blocked" if row.blocked else "idle",
        "jobs": row.jobs,
        "last_pop": row.last / 1000,
        **blocked,
    }


def logged(action: Action) -> Answer:
    """An action in the log."""
    outcome = dict({"code": NOT_KNOWN, "done": 0} if action.outcome is None else action.outcome)
    outcome.pop(OF, None)
    return {"at": action.at_ms / 1000, **action.begun, "outcome": outcome.pop("code", None), **outcome}


def died(job: Job) -> Answer:
    """A summary of a dead letter."""
    cause = job.cause.name.lower()
    return {"id": job.id, "cause": cause, "reason": job.reason, "dead_since": in_seconds(job.next)}


def described(job: Job, *, with_body: bool, is_whole: bool = True) -> Answer:
    """Everything about a job, times in unix seconds and spans in seconds. `is_whole`: True if its body was read,
    too."""
    answer: Answer = {
        "id": job.id,
        "state": job.state.word,
        "topic": job.topic,
        **({"size": job.size} if is_whole else {}),
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
        **({} if job.key is None else {"key": job.key}),
        "headers": _json(job.optional.get(Tag.HEADERS)),
        "tags": _json(job.optional.get(Tag.TAGS)),
    }
    if job.deliveries:
        answer["lease"] = job.lease
        answer["worker"] = job.text(Tag.WORKER)
        answer["reason"] = job.reason
    ended = job.lease_ended
    if ended is not None:
        answer["ended"] = ended / 1000
    elif job.cause not in (Cause.NONE, Cause.LEASE):
        answer["cause"] = job.cause.name.lower()
    # `next` depends on the state: until when the job waits or is remembered, or since when it is ready or dead.
    until = {State.READY: "ready_since", State.DEAD: "dead_since", State.RESERVED: "reserved_until"}
    answer[until.get(job.state, "until")] = job.next / 1000
    return answer


Reaches = Callable[[str], bool]

_SECRET = ("token",)  # settings of dialects
_DEFAULT = "default"


def instance(found: Instance) -> Answer:
    """A process of the service."""
    about = found.about
    return {
        "instance": found.name or None,
        "host": about.host if about else None,
        "pid": about.pid if about else None,
        "worker": about.worker if about else None,
        "version": about.version if about else None,
        "started": about.started / 1000 if about else None,
        "signed": found.signed / 1000,
        "timers": {str(shard): buckets for shard, buckets in found.timers.items()} if about else None,
        "parked": found.waiting,
    }


def settings_in_force(loaded: Loaded, reaches: Reaches) -> Answer:
    """The settings and where each came from, and the policies and virtual topics within reach. A secret is shown only
    as set or not set."""
    chosen = loaded.settings
    virtual = {
        name: [target for target in targets if reaches(target)]
        for name, targets in chosen.virtual_topics.items()
        if reaches(name)
    }
    return {
        "settings": [*_settings(loaded), *_of_roles(chosen), *_of_dialects(chosen)],
        "policies": [_policy(chosen, name, topic) for name, topic in chosen.topics.items() if reaches(name)],
        "virtual_topics": virtual,
    }


def _settings(loaded: Loaded) -> Iterator[Answer]:
    for name in Settings.__struct_fields__:
        if name not in TABLES:
            source = loaded.sources.get(name, _DEFAULT)
            value = getattr(loaded.settings, name)
            if name in URLS:  # a worker process gets the URL of the embedded Redis here, which is not a setting
                value = _secret(value and source != _DEFAULT)
            yield {"name": name, "value": value, "source": source}


def _of_roles(chosen: Settings) -> Iterator[Answer]:
    """The file with the console's token for each group. Only a settings file can set these."""
    for group, file in chosen.console_roles.items():
        yield {"name": f"console_roles.{group}", "value": file, "source": "file"}


def _of_dialects(chosen: Settings) -> Iterator[Answer]:
    """The settings of the dialects that are on. Only a settings file can set these."""
    for dialect, options in chosen.protocols.open():
        defaults = type(options)()
        for name in options.__struct_fields__:
            value = getattr(options, name)
            source = _DEFAULT if value == getattr(defaults, name) else "file"
            shown = _secret(value) if name in _SECRET else value
            yield {"name": f"protocols.{dialect}.{name}", "value": shown, "source": source}


def _secret(value: object) -> str:
    return "set" if value else "not set"


def _policy(chosen: Settings, name: str, topic: TopicSettings) -> Answer:
    """The policy in force for a topic, and the names of the settings that the topic sets itself."""
    defaults = TopicSettings()
    own = [each for each in topic.__struct_fields__ if getattr(topic, each) != getattr(defaults, each)]
    return {"topic": name, **{each: _in_force(chosen, topic, each) for each in topic.__struct_fields__}, "own": own}


def _in_force(chosen: Settings, topic: TopicSettings, name: str) -> Any:
    value = getattr(topic, name)
    return msgspec.to_builtins(getattr(chosen, f"default_{name}", None) if value is None else value)
