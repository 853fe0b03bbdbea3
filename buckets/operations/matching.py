"""Which jobs an operation takes, and when those of a reschedule are due then."""

from __future__ import annotations

import json

from buckets.job import Job, State, Tag, later_ms
from buckets.operations.record import Asked

_MOST_MS = 253_402_300_799_000  # the end of the year 9999


def matches(asked: Asked, job: Job) -> bool:
    """Whether an operation takes a job of its topics and states. The job needs no body."""
    return _was_there(asked, job) and _fits(asked, job) and _is_to_move(asked, job)


def _was_there(asked: Asked, job: Job) -> bool:
    """Whether it is as it was when the operation was planned, as far as its record tells."""
    if job.created > asked.begun or job.lease > asked.begun * 1000:
        return False
    # Since when it is dead, or ready. Of all states, one that was delayed matched, too.
    is_new = job.state is State.DEAD or (job.state is State.READY and asked.filter.state is State.READY)
    return not is_new or job.next <= asked.begun


def _fits(asked: Asked, job: Job) -> bool:
    wanted = asked.filter
    dead = job.state is State.DEAD
    return (
        job.id.startswith(wanted.prefix)
        and (not wanted.cause or (dead and job.cause.name.lower() == wanted.cause))
        and wanted.reason.lower() in (job.reason or "").lower()
        and (not wanted.tag or wanted.tag in _tags(job))
        and _between(wanted.died_from, job.next if dead else None, wanted.died_to)
        and _between(wanted.due_from, due_of(job), wanted.due_to)
        and _between(wanted.created_from, job.created, wanted.created_to)
    )


def due_of(job: Job) -> int:
    """When it falls due, of a delayed one next."""
    return job.next if job.state is State.DELAYED else job.due


def _tags(job: Job) -> list[str]:
    try:
        found = json.loads(job.optional.get(Tag.TAGS) or b"[]")
    except ValueError:
        return []
    return found if isinstance(found, list) else []


def _between(first: int | None, value: int | None, last: int | None) -> bool:
    if first is None and last is None:
        return True
    return value is not None and (first is None or first <= value) and (last is None or value <= last)


def _is_to_move(asked: Asked, job: Job) -> bool:
    """False for one that already is where the operation moves jobs to: so those that it has moved are not met twice."""
    if asked.at_ms is None:
        return True
    return not asked.at_ms <= due_of(job) <= asked.at_ms + asked.spread_ms


def new_due(asked: Asked, job: Job) -> int:
    """When a job is due after a reschedule, in ms since the epoch; 0 for other kinds."""
    if asked.shift_ms is not None:
        return min(max(due_of(job) + asked.shift_ms, 0), _MOST_MS)
    if asked.at_ms is not None:
        return asked.at_ms + later_ms(job.id, asked.spread_ms)
    return 0
