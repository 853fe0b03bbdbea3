"""The columns of the files: those of the views `jq_timeline` and `jq_delivery`, and of the table of jobs.

Times are timestamps in UTC, or null if there is none; states and what happened are words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import BigInteger, Column, Float, MetaData, String, Table

from buckets.job import Cause, State, Verb
from jobqueue.journal import tables
from jobqueue.journal.views import WORDS

_INSTANT = pa.timestamp("us", tz="UTC")
_Values: TypeAlias = Any
"""A pyarrow array; pyarrow has no types for mypy."""


class _Made(NamedTuple):
    """A column of a file."""

    kind: pa.DataType
    of: tuple[str, ...]
    """The columns from which it is made."""
    make: Callable[..., _Values]


def _same(kind: pa.DataType) -> Callable[[str], _Made]:
    return lambda of: _Made(kind, (of,), lambda values: values.cast(kind))


def _instant(us: int) -> Callable[[str], _Made]:
    """Makes a timestamp from a number since the epoch, in units of `us` microseconds; 0 becomes null."""

    def make(values: _Values) -> _Values:
        known = pc.if_else(pc.equal(values, 0), None, values)
        return (pc.multiply(known, us) if us > 1 else known).cast(_INSTANT)

    return lambda of: _Made(_INSTANT, (of,), make)


def _spelled(values: _Values, words: Mapping[Any, str]) -> _Values:
    """The words for stored numbers; null for an unknown number."""
    known = pa.array([words.get(number) for number in range(max(words) + 1)])
    return pc.take(known, pc.if_else(pc.less(values, len(known)), values, None))


def _word(words: Mapping[Any, str]) -> Callable[[str], _Made]:
    return lambda of: _Made(pa.string(), (of,), lambda values: _spelled(values, words))


def _what(verb: _Values, before: _Values, after: _Values) -> _Values:
    """What happened, as the view says it."""
    is_due = pc.equal(verb, int(Verb.DUE))
    if not pc.any(is_due).as_py():
        return _spelled(verb, WORDS)
    fell_due = pc.if_else(pc.equal(after, int(State.DEAD)), "ttl over", WORDS[Verb.DUE])
    is_over = pc.equal(before, int(State.RESERVED))
    return pc.if_else(is_due, pc.if_else(is_over, "lease over", fell_due), _spelled(verb, WORDS))


class Gap(NamedTuple):
    """A range of entries that Redis took back in a shard: a row of `jq_gap`."""

    shard: int
    epoch: int
    from_ms: int
    from_seq: int
    to_ms: int
    to_seq: int


def behind(ms: _Values, seq: _Values, place: tuple[int, int]) -> _Values:
    """For each entry, whether it comes after a place."""
    same = pc.and_(pc.equal(ms, place[0]), pc.greater(seq, place[1]))
    return pc.or_(pc.greater(ms, place[0]), same)


def _forgotten(gaps: Sequence[Gap]) -> _Made:
    def make(shard: _Values, ms: _Values, seq: _Values, branch: _Values) -> _Values:
        found = pc.less(shard, 0)
        for gap in gaps:
            told_before = pc.and_(pc.equal(shard, gap.shard), pc.less(branch, gap.epoch))
            after = behind(ms, seq, (gap.from_ms, gap.from_seq))
            within = pc.and_not(after, behind(ms, seq, (gap.to_ms, gap.to_seq)))
            found = pc.or_(found, pc.and_(told_before, within))
        return found

    return _Made(pa.bool_(), ("shard", "ms", "seq", "branch"), make)


_text, _int, _long = _same(pa.string()), _same(pa.int32()), _same(pa.int64())
_seconds = _same(pa.float64())
_from_us, _from_ms = _instant(1), _instant(1000)
_state = _word({0: "none", **{each: each.word for each in State}})
_cause = _word({each: each.name.lower() for each in Cause})
_MISSED = 2
_PLACE = {"source": _text("source"), "shard": _int("shard"), "ms": _long("ms"), "seq": _long("seq"), "n": _int("n")}

_EVENTS = {
    "time": _from_us("at"),
    "id": _text("id"),
    "life": _from_ms("life"),
    "topic": _text("topic"),
    "what": _Made(pa.string(), ("verb", "state_before", "state_after"), _what),
    "state_before": _state("state_before"),
    "state_after": _state("state_after"),
    "due": _from_ms("due"),
    "next": _from_ms("next"),
    "was": _from_ms("was"),
    "priority": _int("priority"),
    "cause": _cause("cause"),
    "attempts": _int("attempts"),
    "deliveries": _int("deliveries"),
    "lease": _long("lease"),
    "worker": _text("worker"),
    "reason": _text("reason"),
    "instance": _text("instance"),
    "actor": _text("actor"),
    **_PLACE,
    "branch": _int("branch"),
}
_DELIVERIES = {
    "time": _from_us("popped"),
    "id": _text("id"),
    "life": _from_ms("life"),
    "topic": _text("topic"),
    "delivery": _int("delivery"),
    "attempt": _int("attempt"),
    "due": _from_ms("due"),
    "ready": _from_ms("ready"),
    "ended": _from_us("ended"),
    "ending": _text("ending"),
    "late": _seconds("late"),
    "waited": _seconds("waited"),
    "worked": _seconds("worked"),
    "priority": _int("priority"),
    "lease": _long("lease"),
    "worker": _text("worker"),
    "reason": _text("reason"),
    "instance": _text("instance"),
    **_PLACE,
}
_JOBS = {
    "time": _from_us("at"),
    "id": _text("id"),
    "life": _from_ms("life"),
    "topic": _text("topic"),
    "state": _state("state"),
    "due": _from_ms("due"),
    "next": _from_ms("next"),
    "ended": _from_us("ended"),
    "priority": _int("priority"),
    "cause": _cause("cause"),
    "ttr": _Made(pa.float64(), ("ttr",), lambda values: pc.divide(values.cast(pa.float64()), 1000)),
    "tries": _int("tries"),
    "attempts": _int("attempts"),
    "deliveries": _int("deliveries"),
    "lease": _long("lease"),
    "worker": _text("worker"),
    "reason": _text("reason"),
    "body": _text("body"),
    "body_missed": _Made(pa.bool_(), ("body_kept",), lambda values: pc.equal(values, _MISSED)),
    **_PLACE,
}

_TEXTS = ("source", "id", "topic", "instance")
_NUMBERS = ("shard", "life", "delivery", "attempt", "lease", "due", "popped", "priority", "ms", "seq", "n")
_delivery = Table(
    "jq_delivery",
    MetaData(),
    *(Column(name, String, nullable=False) for name in _TEXTS),
    *(Column(name, BigInteger, nullable=False) for name in _NUMBERS),
    *(Column(name, BigInteger) for name in ("ready", "ended")),
    *(Column(name, Float) for name in ("late", "waited", "worked")),
    *(Column(name, String) for name in ("ending", "worker", "reason")),
)
"""The view (views.py)."""


class Form:
    """The columns of a kind of file."""

    def __init__(self, table: Table, made: dict[str, _Made]) -> None:
        self._made = made
        names = dict.fromkeys(name for each in made.values() for name in each.of)
        self.source = table
        """The table or view that is read."""
        self.columns: list[Column[Any]] = [table.c[name] for name in names]
        """The columns that are read."""
        self.schema = pa.schema([(name, each.kind) for name, each in made.items()])

    def table(self, batch: pa.RecordBatch) -> pa.Table:
        """The rows that were read, as files have them."""
        made = [each.make(*(batch.column(name) for name in each.of)) for each in self._made.values()]
        return pa.table(made, schema=self.schema)


def forms(gaps: Sequence[Gap]) -> dict[str, Form]:
    """The forms, by what is exported. `gaps`: the ranges that Redis took back."""
    return {
        "events": Form(tables.event, {**_EVENTS, "forgotten": _forgotten(gaps)}),
        "deliveries": Form(_delivery, _DELIVERIES),
        "jobs": Form(tables.job, _JOBS),
    }
