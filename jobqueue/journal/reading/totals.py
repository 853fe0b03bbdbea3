"""Checks that the journal has everything: its events since a moment must add up to the totals that Redis has counted
since then.

The totals of each topic are read with the place in the stream to which they apply. What was recorded between two such
places is known exactly from the events; sums by minute make it unnecessary to count most of them. The first place of
each topic is kept in `jq_total`. It is renewed after anything that breaks the sum (a gap, or Redis going back), and
before the events since then are too old to be kept.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import Connection, Select, delete, func, insert, or_, select
from sqlalchemy.exc import IntegrityError

from buckets.events.stream import TOTALS, Place, Stream
from buckets.job import LIVE, State, Verb
from jobqueue.journal.reading.sql import Sql
from jobqueue.journal.reading.verdict import FORGOTTEN
from jobqueue.journal.tables import event, gap, minute, total

RENEWED_US = 7 * 86_400 * 1_000_000
"""The age at which the first places are renewed."""
_AT_ONCE = 200  # topics per script
_MINUTE_US = 60_000_000
_REST = ""  # the topic of the row for all topics without a row
_WIDTH = len(TOTALS)
COMPARED = ("added", "finished", "deleted")
"""What is compared. Redis also counts a job that was added over a tombstone as replaced, so the added ones are those
created or replaced. It counts a replaced job as deleted in its former topic, which no event shows, so the deleted ones
are compared over all topics."""
_BY_TOPIC = 2
ALL = "all topics"
_NEW = (Verb.ADD, Verb.IMPORT, Verb.RESTORE)
_BROUGHT = (Verb.IMPORT, Verb.RESTORE)


class Base(NamedTuple):
    """The totals of a topic in a shard, and the place to which they apply."""

    place: Place
    time_us: int
    numbers: tuple[int, ...]


Bases = dict[tuple[int, str], Base]
"""By shard and topic."""


async def read(streams: Sequence[Stream]) -> Bases:
    """The totals as they are now."""
    bases: Bases = {}
    for shard, stream in enumerate(streams):
        begun = await stream.totals([])
        bases[shard, _REST] = Base(begun.place, begun.now_us, (0,) * _WIDTH)
        topics = await stream.topics()
        for at in range(0, len(topics), _AT_ONCE):
            found = await stream.totals(topics[at : at + _AT_ONCE])
            for topic, numbers in found.topics.items():
                bases[shard, topic] = Base(found.place, found.now_us, numbers)
    return bases


async def renew(streams: Sequence[Stream], sql: Sql, source: str) -> None:
    """Read and store the totals from which events are added up from now on."""
    rows = [
        {"source": source, "shard": shard, "topic": topic, "ms": base.place.ms, "seq": base.place.seq}
        | {"time": base.time_us}
        | dict(zip(TOTALS, base.numbers, strict=True))
        for (shard, topic), base in (await read(streams)).items()
    ]

    def write(connection: Connection) -> None:
        connection.execute(delete(total).where(total.c.source == source))
        connection.execute(insert(total), rows)

    with contextlib.suppress(IntegrityError):  # another process has just done it
        await sql.run(write)


async def began_us(sql: Sql, source: str) -> int | None:
    """Since when events are added up, in us, or None if they are not."""
    query = select(func.max(total.c.time)).where(total.c.source == source)
    return await sql.run(lambda connection: connection.execute(query).scalar())


async def is_due(sql: Sql, source: str, now_us: int) -> bool:
    """Returns True if the totals must be renewed: at first, after a gap or after Redis went back, and once they are
    old."""
    query = select(func.max(gap.c.found)).where(gap.c.source == source)
    broken = await sql.run(lambda connection: connection.execute(query).scalar())
    began = await began_us(sql, source)
    return broken is not None and (began is None or began < broken or began < now_us - RENEWED_US)


@dataclass(slots=True)
class Difference:
    """The numbers of a topic, or of all topics, in the order of `COMPARED`."""

    redis: list[int] = field(default_factory=lambda: [0] * len(COMPARED))
    """What Redis has counted since the first place."""
    journal: list[int] = field(default_factory=lambda: [0] * len(COMPARED))

    @property
    def is_one(self) -> bool:
        """Whether Redis and the journal differ."""
        return self.redis != self.journal


async def compare(sql: Sql, source: str, until: Bases) -> dict[str, Difference]:
    """By topic, what happened from the first places up to `until`, which the journal must have reached."""
    since = await _first_places(sql, source)
    if not since:
        return {}
    minute_of = max(base.time_us for base in since.values()) // _MINUTE_US
    counted, later = await sql.run(lambda connection: _counted(connection, source, since, until, minute_of))
    compared: dict[str, Difference] = defaultdict(Difference)
    for topic, numbers in counted.items():
        compared[topic].journal = numbers
    for (shard, topic), base in until.items():
        _add(compared[topic].redis, _compared(base.numbers))
        before = since.get((shard, topic))
        _add(compared[topic].redis, _compared(before.numbers) if before else (), -1)
    compared.pop(_REST, None)
    whole = Difference()
    for topic, found in compared.items():
        differs = found.redis[:_BY_TOPIC] != found.journal[:_BY_TOPIC]
        if differs and await _began_again(sql, source, topic, _sum(until, topic), later[topic]):
            found.redis = list(found.journal)
        _add(whole.redis, found.redis)
        _add(whole.journal, found.journal)
        found.redis[_BY_TOPIC:] = found.journal[_BY_TOPIC:]
    return {**compared, ALL: whole}


def _compared(numbers: Sequence[int]) -> tuple[int, ...]:
    """The numbers of `COMPARED` from Redis's totals."""
    named = dict(zip(TOTALS, numbers, strict=True))
    return named["created"] + named["replaced"], named["finished"], named["deleted"]


def _sum(bases: Bases, topic: str) -> list[int]:
    """The totals of a topic over all shards."""
    numbers = [0] * len(COMPARED)
    for (_, name), base in bases.items():
        _add(numbers, _compared(base.numbers) if name == topic else ())
    return numbers


async def _began_again(sql: Sql, source: str, topic: str, now: Sequence[int], later: Sequence[int]) -> bool:
    """Returns True if Redis's totals only count from some minute on: a service forgets a topic that is idle for long,
    and counts from 0 when the topic comes back. `later`: what the journal has counted beyond these totals."""
    query = (
        select(minute.c.minute, minute.c.verb, minute.c.state, minute.c.events)
        .where(minute.c.source == source, minute.c.topic == topic)
        .order_by(minute.c.minute.desc())
    )
    wanted = [one + other for one, other in zip(now, later, strict=True)][:_BY_TOPIC]
    numbers, last = [0] * len(COMPARED), None
    for at, verb, after, events in await sql.run(lambda connection: connection.execute(query).all()):
        if at != last and numbers[:_BY_TOPIC] == wanted:
            return True
        _add(numbers, _of(verb, after, events))
        last = at
    return numbers[:_BY_TOPIC] == wanted


def _add(numbers: list[int], more: Iterable[int], sign: int = 1) -> None:
    for at, number in enumerate(more):
        numbers[at] += sign * number


async def _first_places(sql: Sql, source: str) -> Bases:
    query = select(total).where(total.c.source == source)
    rows = await sql.run(lambda connection: connection.execute(query).mappings().all())
    return {
        (row["shard"], row["topic"]): Base(
            Place(row["ms"], row["seq"]), row["time"], tuple(row[name] for name in TOTALS)
        )
        for row in rows
    }


def _of(verb: int, after: int, number: int) -> tuple[int, ...]:
    """What events add to the numbers of `COMPARED`."""
    is_own = verb not in _BROUGHT
    return (
        number if verb in (*_NEW, Verb.REPLACE) and after in LIVE else 0,
        number if is_own and after == State.FINISHED else 0,
        number if verb == Verb.REPLACE or (is_own and after == State.DELETED) else 0,
    )


def _counted(
    connection: Connection, source: str, since: Bases, until: Bases, minute_of: int
) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """By topic, what the journal has counted from the first places up to `until`, and what it has counted after that.
    The first is added up from the sums of the minutes after `minute_of`, and from the events until the end of that
    minute."""
    counted: dict[str, list[int]] = defaultdict(lambda: [0] * len(COMPARED))
    later: dict[str, list[int]] = defaultdict(lambda: [0] * len(COMPARED))
    sums = (
        select(minute.c.topic, minute.c.verb, minute.c.state, func.sum(minute.c.events))
        .where(minute.c.source == source, minute.c.minute > minute_of)
        .group_by(minute.c.topic, minute.c.verb, minute.c.state)
    )
    for topic, verb, after, number in connection.execute(sums):
        _add(counted[topic], _of(verb, after, int(number)))
    ranges = _forgotten(connection, source)
    first_ms = min(base.place.ms for base in since.values())
    upto_us = (minute_of + 1) * _MINUTE_US
    for each in _events(connection, source, event.c.ms >= first_ms, event.c.at < upto_us):
        if _is_behind(each, since) and not _is_behind(each, until) and not _is_forgotten(each, ranges):
            _add(counted[each.topic], _of(each.verb, each.state_after, each.number))
    last_ms = min(base.place.ms for base in until.values())
    for each in _events(connection, source, event.c.ms >= last_ms, event.c.at >= upto_us):
        if _is_behind(each, until):
            _add(later[each.topic], _of(each.verb, each.state_after, each.number))
            _add(counted[each.topic], _of(each.verb, each.state_after, each.number), -1)
    return counted, later


def _events(connection: Connection, source: str, *where: Any) -> Iterator[Any]:
    """The events that count, one row for each kind of equal events, with their `number`."""
    columns = (event.c.shard, event.c.topic, event.c.ms, event.c.seq, event.c.branch, event.c.verb, event.c.state_after)
    counts = or_(event.c.state_after.in_([State.FINISHED, State.DELETED]), event.c.verb.in_([*_NEW, Verb.REPLACE]))
    query: Select[Any] = (
        select(*columns, func.count().label("number"))
        .where(event.c.source == source, event.c.branch >= 0, counts, *where)
        .group_by(*columns)
    )
    yield from connection.execute(query)


def _is_behind(row: Any, bases: Mapping[tuple[int, str], Base]) -> bool:
    base = bases.get((row.shard, row.topic)) or bases.get((row.shard, _REST))
    return base is not None and (row.ms, row.seq) > base.place


def _forgotten(connection: Connection, source: str) -> list[Any]:
    return list(connection.execute(select(gap).where(gap.c.source == source, gap.c.kind == FORGOTTEN)))


def _is_forgotten(row: Any, ranges: Sequence[Any]) -> bool:
    place = (row.ms, row.seq)
    return any(
        each.shard == row.shard
        and row.branch < each.epoch
        and (each.from_ms, each.from_seq) < place <= (each.to_ms, each.to_seq)
        for each in ranges
    )
