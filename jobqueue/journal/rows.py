"""Turns events (buckets/events) into the rows that a batch writes, and into the sums by minute (`jq_minute`)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from buckets.events.codec import Entry, Event
from buckets.job import LEASE_ENDED, State, Tag, Verb
from buckets.layout import SCHEDULE
from buckets.record import unpack_optional
from jobqueue.journal.schedules import ScheduleRows
from jobqueue.journal.store import Row
from jobqueue.journal.tables import event
from jobqueue.metrics.process import LATENESS_S

_COLUMNS = [column.name for column in event.columns]
_SOURCE, _TOPIC, _VERB, _AFTER, _AT, _DUE, _DELIVERIES = (
    _COLUMNS.index(name) for name in ("source", "topic", "verb", "state_after", "at", "due", "deliveries")
)
_KEY = 5  # columns of the primary key
_MOST = 3  # the place of `late_most` among the sums
_NO_SUMS = [0, 0, 0.0, 0.0, *[0] * (len(LATENESS_S) + 1)]
_DELIVERED = (Verb.POP, Verb.TAKE)
_NOT_COUNTED = (Verb.WALK, Verb.VANISHED, Verb.SCHEDULE, Verb.OCCUR, Verb.UNSCHEDULE)
_MINUTE_US = 60_000_000


def minutes_of(events: Iterable[Row]) -> list[Row]:
    """Sum events up. The rows are sorted by their keys, so that writers of several shards write them in the same
    order."""
    sums: dict[tuple[str, int, str, int, int], list[float]] = {}
    for row in events:
        verb = row[_VERB]
        key = (row[_TOPIC], verb, row[_AFTER], row[_AT] // _MINUTE_US, row[_SOURCE])
        held = sums.get(key)
        if held is None:
            if verb in _NOT_COUNTED:
                continue
            held = sums[key] = _NO_SUMS.copy()
        held[0] += 1
        if row[_DELIVERIES] == 1 and verb in _DELIVERED:
            _add_first(held, max(0, row[_AT] - row[_DUE] * 1000) / 1e6)
    rows = ((minute, source, topic, verb, after, *held) for (topic, verb, after, minute, source), held in sums.items())
    return sorted((_rounded(row) for row in rows), key=lambda row: row[:_KEY])


def _add_first(sums: list[float], late_s: float) -> None:
    """Add a first delivery."""
    sums[1] += 1
    sums[2] += late_s
    sums[_MOST] = max(sums[_MOST], late_s)
    sums[_MOST + 1 + bisect_left(LATENESS_S, late_s)] += 1


def _rounded(row: Row) -> Row:
    """Round the sum of seconds to whole microseconds."""
    return (*row[: _KEY + 2], round(row[_KEY + 2], 6), *row[_KEY + 3 :])


def less(minutes: Sequence[Row], counted: Iterable[Row]) -> list[Row]:
    """The sums without the events in `counted`, which were counted before. The largest lateness stays, because it was
    counted, too."""
    left = {row[:_KEY]: row for row in minutes}
    for row in minutes_of(counted):
        if (held := left.get(row[:_KEY])) is not None:
            sums = [
                one if place == _MOST else one - other
                for place, (one, other) in enumerate(zip(held[_KEY:], row[_KEY:], strict=True))
            ]
            left[row[:_KEY]] = _rounded((*row[:_KEY], *sums))
    return [row for row in left.values() if row[_KEY]]


Kept = Literal["all", "ends", "none"]
"""Which events are kept: all; those that begin or end a life, kill a job, or are of a topic or a schedule; or none."""
Unread = tuple[bytes, bytes, str]
"""In place of an event that cannot be read: its id, its value, and why."""
WALKED = -1
"""The branch of events that a walk has read."""

_ENDED = (State.FINISHED, State.DELETED)
_TOLD_VERBS = {Verb.ADD, Verb.REPLACE, Verb.IMPORT, Verb.RESTORE}
_TOLD_STATES = {*_ENDED, State.DEAD, 0}
_WHO, _REASON, _INSTANCE = 255, 1024, 96  # sizes of the columns, in characters
_MOST_BLOCKS = 1024  # optional blocks that are cached


@dataclass(slots=True)
class Rows:
    """Rows of the tables, as `Batch` has them."""

    events: list[Row]
    jobs: list[Row]
    minutes: list[Row]
    schedules: list[Row]
    refused: list[Row]


@dataclass(slots=True)
class _Told:
    """What a batch knows about a job: its newest event, completed from earlier events of the same life."""

    event: Event
    place: tuple[int, int, int]
    at: int
    options: bytes | None  # None if no event has them
    body: str | None
    is_missed: bool  # the job has a new body, which no event has
    state: int


class Collector:
    """Makes the rows of a batch from the entries of a shard, in their order.

    `branch`: 0 for new events; the epoch for events up to the place to which the stream had been drained before Redis
    went back (the store leaves out those that it has already, which needs `may_repeat`); or `WALKED`. `events` and
    `bodies`: which of them are kept. Events up to the place `counted` (ms, seq) that are not kept are not added to the
    minutes either: after Redis went back, its stream repeats events that were already counted.
    """

    def __init__(
        self,
        source: str,
        shard: int,
        *,
        branch: int = 0,
        events: Kept = "all",
        bodies: bool = True,
        counted: tuple[int, int] = (0, 0),
    ) -> None:
        self._source, self._shard, self._branch = source, shard, branch
        self._kept, self._bodies, self._counted = events, bodies, counted
        self._events: list[Row] = []
        self._jobs: dict[str, _Told] = {}
        self._schedules = ScheduleRows(source, shard, bodies=bodies)
        self._refused: list[Row] = []

    def add(self, ms: int, seq: int, entry: Entry, events: Sequence[Event | Unread], first: int = 0) -> None:
        """Add an entry of the stream. `first`: the number of its first event."""
        source, shard, branch = self._source, self._shard, self._branch
        instance, actor = entry.instance[:_INSTANCE], entry.actor[:_WHO]
        for n, each in enumerate(events, first):
            if not isinstance(each, Event):
                self._refuse(ms, seq, n, entry, *each)
                continue
            body = None
            worker, reason = words_of(each.options, each.lease_ended)
            if each.body is not None:
                try:
                    body = each.body.decode()
                except UnicodeDecodeError:
                    self._refuse(ms, seq, n, entry, each.id.encode(), each.body, "a body that is not UTF-8")
                    continue
            (job_id, verb, before, after, at, was, topic, life, due, then, priority, cause, *_) = each
            self._events.append(
                (
                    *(ms, source, shard, seq, n, branch, job_id, life, topic, verb, before, after, at, was, due, then),
                    *(priority, cause, each.attempts, each.deliveries, each.lease),
                    *(instance, actor, worker, reason, each.checksum),
                )
            )
            if life:
                self._tell(each, (ms, seq, n), body)
            elif job_id.startswith(SCHEDULE):
                self._schedules.tell(each, (ms, seq, n))
            elif job_id:
                self._tell(each, (ms, seq, n), body)

    def _refuse(self, ms: int, seq: int, n: int, entry: Entry, raw_id: bytes, value: bytes, why: str) -> None:
        raw = b"\0".join((raw_id, value))
        self._refused.append((self._source, self._shard, ms, seq, n, entry.at, why[:_REASON], raw))

    def _tell(self, event: Event, place: tuple[int, int, int], body: str | None) -> None:
        held = self._jobs.get(event.id)
        if not event.after:
            self._set_aside(event, place, held)
            return
        # Most tombstones keep no options, but the job's earlier options are still worth knowing.
        options = event.options if event.has_options or event.after in _ENDED else b""
        is_missed = event.verb == Verb.REWRITE and body is None
        if held is not None and held.event.created == event.created:
            if options is None:
                options = held.options
            if body is None and not is_missed:
                body, is_missed = held.body, held.is_missed
        self._jobs[event.id] = _Told(event, place, event.at, options, body, is_missed, event.after)

    def _set_aside(self, event: Event, place: tuple[int, int, int], held: _Told | None) -> None:
        """Note that the job was set aside or has vanished: nothing else is known about it."""
        if held is None:
            self._jobs[event.id] = _Told(event, place, event.at, None, None, False, 0)
        else:
            held.place, held.at, held.state = place, event.at, 0

    def rows(self) -> Rows:
        """The rows for what was added."""
        events, counted = self._events, self._events
        if self._kept != "all":
            events = [] if self._kept == "none" else [row for row in events if _is_end(row)]
            if self._counted > (0, 0):
                fresh = (row for row in counted if (row[0], row[3]) > self._counted or self._is_kept(row))
                counted = list(fresh)
        return Rows(events, self._job_rows(), minutes_of(counted), self._schedules.rows(), self._refused)

    def _is_kept(self, row: Row) -> bool:
        return self._kept == "ends" and _is_end(row)

    def _job_rows(self) -> list[Row]:
        return [self._job_row(told) for told in self._jobs.values()]

    def _job_row(self, told: _Told) -> Row:
        event, options = told.event, told.options
        worker, reason = words_of(options, event.lease_ended)
        # A row with life 0: all that is known is that the job was set aside.
        life = event.created if event.after else 0
        ended = told.at if not told.state or told.state in _ENDED else None
        kept = (2 if told.is_missed else 1) if self._bodies else 0
        return (
            *(self._source, event.id, self._shard, life, event.topic, told.state, event.priority, event.cause),
            *(event.due, event.next, event.ttr, event.tries, event.attempts, event.deliveries, event.step, event.lease),
            *(int(event.keeps_body), options, worker, reason, told.body if self._bodies else None, kept),
            *(*told.place, told.at, ended),
        )


def _is_end(row: Row) -> bool:
    return row[9] in _TOLD_VERBS or row[11] in _TOLD_STATES


_blocks: dict[bytes, tuple[str | None, str | None]] = {}


def words_of(options: bytes | None, lease_ended: bool) -> tuple[str | None, str | None]:
    """The worker and the reason in an optional block, each None if it has none. If a job died because its lease ended,
    that is the reason."""
    worker, reason = _words_in(options) if options else (None, None)
    return worker, LEASE_ENDED if lease_ended else reason


def headers_of(options: bytes | None) -> bytes | None:
    """The job's headers in an optional block, as JSON, or None if it has none."""
    return unpack_optional(options).get(Tag.HEADERS) if options else None


def _words_in(options: bytes) -> tuple[str | None, str | None]:
    known = _blocks.get(options)
    if known is None:
        fields = unpack_optional(options)
        if len(_blocks) >= _MOST_BLOCKS:
            _blocks.clear()
        known = _text(fields.get(Tag.WORKER), _WHO), _text(fields.get(Tag.REASON), _REASON)
        _blocks[options] = known
    return known


def _text(raw: bytes | None, most: int) -> str | None:
    # PostgreSQL accepts no NUL in text; bytes that cannot be decoded must not hide the rest.
    return None if raw is None else raw.decode("utf-8", "replace").replace("\0", "\ufffd")[:most]
