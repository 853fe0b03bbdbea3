"""The columns of the files, and how they follow from those of the journal's tables.

Times are timestamps in UTC; states, verbs and causes are words. What has no value is null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Column

from buckets.job import Cause, State, Verb
from jobqueue.journal import tables

_INSTANT = pa.timestamp("us", tz="UTC")
_Values: TypeAlias = Any
"""An array of pyarrow's, which has no types for mypy."""


class _Made(NamedTuple):
    """A column of a file."""

    kind: pa.DataType
    of: str
    """The column of the table that it is made of."""
    make: Callable[[_Values], _Values]


def _same(kind: pa.DataType) -> Callable[[str], _Made]:
    return lambda of: _Made(kind, of, lambda values: values.cast(kind))


def _instant(us: int) -> Callable[[str], _Made]:
    """Of a number of `us` microseconds since the epoch; 0 is none."""

    def make(values: _Values) -> _Values:
        known = pc.if_else(pc.equal(values, 0), None, values)
        return (pc.multiply(known, us) if us > 1 else known).cast(_INSTANT)

    return lambda of: _Made(_INSTANT, of, make)


def _word(words: Iterable[State | Verb | Cause]) -> Callable[[str], _Made]:
    """Of a stored number; one that is not known has none."""
    by_number = {int(each): each.name.lower() for each in words if each}
    known = pa.array([by_number.get(number) for number in range(max(by_number) + 1)])

    def make(values: _Values) -> _Values:
        return pc.take(known, pc.if_else(pc.less(values, len(known)), values, None))

    return lambda of: _Made(pa.string(), of, make)


def _name(of: str) -> _Made:
    """A text; the empty one is none."""
    return _Made(pa.string(), of, lambda values: pc.if_else(pc.equal(values, ""), None, values))


_text, _int, _long = _same(pa.string()), _same(pa.int32()), _same(pa.int64())
_from_us, _from_ms = _instant(1), _instant(1000)
_state, _verb, _cause = _word(State), _word(Verb), _word(Cause)
_seconds = _Made(pa.float64(), "ttr", lambda values: pc.divide(values.cast(pa.float64()), 1000))
_MISSED = 2

EVENTS = {
    "at": _from_us("at"),
    "id": _name("id"),
    "topic": _name("topic"),
    "verb": _verb("verb"),
    "state_before": _state("state_before"),
    "state_after": _state("state_after"),
    "created_at": _from_ms("life"),
    "due_at": _from_ms("due"),
    "next_before": _from_ms("was"),
    "next_after": _from_ms("next"),
    "priority": _int("priority"),
    "cause": _cause("cause"),
    "attempts": _int("attempts"),
    "deliveries": _int("deliveries"),
    "lease": _long("lease"),
    "worker": _text("worker"),
    "reason": _text("reason"),
    "instance": _name("instance"),
    "actor": _name("actor"),
    "source": _text("source"),
    "shard": _int("shard"),
    "ms": _long("ms"),
    "seq": _long("seq"),
    "n": _int("n"),
    "branch": _int("branch"),
}
"""Of events: what happened, and at the end the place of each."""

JOBS = {
    "id": _text("id"),
    "topic": _name("topic"),
    "state": _state("state"),
    "created_at": _from_ms("life"),
    "due_at": _from_ms("due"),
    "next_at": _from_ms("next"),
    "ended_at": _from_us("ended"),
    "told_at": _from_us("at"),
    "priority": _int("priority"),
    "cause": _cause("cause"),
    "ttr": _seconds,
    "tries": _int("tries"),
    "attempts": _int("attempts"),
    "deliveries": _int("deliveries"),
    "lease": _long("lease"),
    "worker": _text("worker"),
    "reason": _text("reason"),
    "body": _text("body"),
    "body_missed": _Made(pa.bool_(), "body_kept", lambda values: pc.equal(values, _MISSED)),
    "source": _text("source"),
    "shard": _int("shard"),
    "ms": _long("ms"),
    "seq": _long("seq"),
    "n": _int("n"),
}
"""Of jobs: the newest life of each, and at the end the place of what was last told of it."""


class Form:
    """The columns of a kind of file."""

    def __init__(self, table: Any, made: dict[str, _Made]) -> None:
        self._made = made
        self.columns: list[Column[Any]] = [table.c[name] for name in dict.fromkeys(each.of for each in made.values())]
        """What is to be read from the table."""
        self.schema = pa.schema([(name, each.kind) for name, each in made.items()])

    def table(self, batch: pa.RecordBatch) -> pa.Table:
        """What was read, as it stands in files."""
        return pa.table([each.make(batch.column(each.of)) for each in self._made.values()], schema=self.schema)


EVENT_FORM = Form(tables.event, EVENTS)
JOB_FORM = Form(tables.job, JOBS)
