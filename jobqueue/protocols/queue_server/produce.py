"""A produce as an add: times are seconds since the epoch, and a job comes again every `retry` s until its `ttl`."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Raw

from buckets import Job, State
from jobqueue.errors import TooLarge
from jobqueue.protocols.queue_server.request import FIELD_ERROR, TIME_ERROR, Refused, Request
from jobqueue.schema import inner
from jobqueue.schema.fields import DAY_S, TEN_YEARS_S
from jobqueue.wires.parameters import stored_text

_TTL_S = 3600  # from the delay on
_MOST_TRIES = 65_535
_LATEST = 100_000_000_000  # seconds since the epoch
_NOTE = b"ttl "  # before the seconds: other systems leave notes too


class Times(NamedTuple):
    """Seconds since the epoch."""

    due: int | None
    """None: at once."""
    ttl: int


def new_job(request: Request, topic: str, max_body_bytes: int, now_s: float) -> inner.Add:
    """`now_s`: the time by Redis's clock. Raises Refused."""
    body = _body(request.needed("data"), max_body_bytes)
    retry = request.integer("retry") or 0
    if retry < 0:
        raise Refused(FIELD_ERROR, "retry is 0 (at most once) or the seconds after which it comes again", "retry")
    now = int(now_s)
    times = _times(request, now)
    add = inner.Add(topic=topic, body=Raw(body), ttr=0.0, tries=1, retention=0.0, numbered=True)
    if times.due is not None:
        add.at = float(times.due)
    if retry:
        add.ttr = float(min(retry, DAY_S))
        add.tries = _tries(times.ttl - max(times.due or 0, now), retry)
        add.note = _NOTE + b"%d" % times.ttl
    return add


def is_last(job: Job) -> bool:
    """Whether the next delivery of a popped job would come after its ttl."""
    if job.state is not State.RESERVED or not job.note.startswith(_NOTE):
        return False
    return job.next >= int(job.note.removeprefix(_NOTE)) * 1000


def _body(data: str, max_body_bytes: int) -> bytes:
    try:
        return stored_text(data, max_body_bytes)
    except TooLarge as error:
        raise Refused(FIELD_ERROR, error.message, "data") from None


def _times(request: Request, now: int) -> Times:
    delay, ttl = request.integer("delay"), request.integer("ttl")
    due = now if delay is None else delay
    ends = due + _TTL_S if ttl is None else ttl
    if due > ends:
        raise Refused(TIME_ERROR, "ttl is before delay" if delay is not None else "ttl is in the past", "ttl")
    if due > now + TEN_YEARS_S or ends > _LATEST:
        raise Refused(FIELD_ERROR, "delay and ttl are seconds since the epoch, and delay is within ten years", "delay")
    return Times(None if delay is None else max(due, 0), max(ends, 0))


def _tries(span: int, retry: int) -> int:
    """How often it can be delivered, at most; 0: no limit."""
    tries = max(1, -(-span // retry))
    return 0 if tries > _MOST_TRIES else tries
