"""Entries of a stream, and writing them: one transaction per batch, which is halved if the database refuses its
content."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import structlog

from buckets.errors import JobQueueError
from buckets.events.codec import Entry, Event, Unreadable, read_all
from buckets.events.stream import START, Place, RawEntry
from buckets.job import Verb
from buckets.record import unpack
from buckets.shards import Shards
from jobqueue.journal.choices import Choice
from jobqueue.journal.keeping import Periods
from jobqueue.journal.reading.figures import Figures
from jobqueue.journal.reading.sql import Sql
from jobqueue.journal.rows import Collector, Kept, Rows, Unread
from jobqueue.journal.store import Batch, ContentRefused, Position, Row

_DAY_MS = 86_400_000
KEPT = Periods(events=30 * _DAY_MS, jobs=90 * _DAY_MS, minutes=730 * _DAY_MS)
"""How long events, jobs and minutes are kept by default."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of `jobqueue journal run`."""

    source: str
    """The name under which the journal knows this namespace on this Redis."""
    batch: int = 5_000
    """How many events fill a transaction; it may have more, as entries are not split."""
    linger_s: float = 0.1
    """How long to wait after less than half a batch."""
    bodies: bool | None = None
    """Whether bodies are kept; None to do as this journal has done until now (a new journal keeps them)."""
    events: Kept | None = None
    """Which events are kept; None to keep those that this journal has kept until now (a new journal keeps all)."""


log = structlog.get_logger()

WHOLE = -1  # in place of the number of an event: the whole entry
WITH_BODY = {Verb.ADD, Verb.REPLACE, Verb.REWRITE, Verb.IMPORT, Verb.RESTORE}
_AT_A_TIME = 8  # bodies fetched at a time
MOST_REASON = 1024


@dataclass(slots=True)
class Unit:
    """An entry, or some of its events."""

    place: Place
    fields: Sequence[bytes]
    entry: Entry | None
    """None if the entry cannot be read at all."""
    events: list[Event | Unread]
    first: int = 0
    """The number of the first event."""
    why: str = ""
    """Why the entry cannot be read."""


def read(raw: RawEntry) -> Unit:
    """Read an entry, even if its content is unreadable."""
    place, fields = Place.read(raw[0]), raw[1]
    try:
        return Unit(place, fields, *read_all(fields))
    except Unreadable as error:
        return Unit(place, fields, None, [], why=str(error))


class Writer:
    """Writes the entries of one shard."""

    def __init__(self, sql: Sql, shards: Shards, shard: int, options: Options, figures: Figures) -> None:
        self._sql, self._shards, self._shard, self._figures = sql, shards, shard, figures
        self._source = options.source
        self.choice = Choice()
        """What is kept."""

    async def write(
        self, position: Position, units: Sequence[Unit], told_us: int, forgotten: Place, may_repeat: bool = False
    ) -> Position:
        """Write the entries after the position; returns the position after them. `told_us`: once they are written, the
        journal has everything that was recorded up to this time, except for gaps. Entries up to the place `forgotten`
        may be in the journal already, because Redis went back; with `may_repeat`, all may be. Raises Overtaken."""
        if self.choice.bodies:
            await self._fetch_bodies(units)
        old, new = (
            [unit for unit in units if unit.place <= forgotten],
            [unit for unit in units if unit.place > forgotten],
        )
        if old:
            position = await self._write(position, old, 0 if new else told_us, forgotten, may_repeat=True)
        if new:
            position = await self._write(position, new, told_us, START, may_repeat=may_repeat)
        return position

    async def _write(
        self, position: Position, units: Sequence[Unit], told_us: int, forgotten: Place, *, may_repeat: bool
    ) -> Position:
        last = units[-1].place
        after = position._replace(
            ms=last.ms, seq=last.seq, entries=position.entries + len(units), time=max(position.time, told_us)
        )
        try:
            await self._commit(position, after, units, forgotten, may_repeat)
        except ContentRefused:
            if len(units) == 1:
                await self._write_alone(position, after, units[0], forgotten)
                return after
            half = len(units) // 2
            between = await self._write(position, units[:half], 0, forgotten, may_repeat=may_repeat)
            return await self._write(between, units[half:], told_us, forgotten, may_repeat=may_repeat)
        return after

    async def _write_alone(self, position: Position, after: Position, unit: Unit, forgotten: Place) -> None:
        """Write an entry in which the database refuses something. The position moves only after all its events are
        written, so each of them may be in the journal already."""
        if unit.entry is None:
            await self._set_aside(position, unit, WHOLE, unit.why)
        for n, each in enumerate(unit.events):
            alone = Unit(unit.place, unit.fields, unit.entry, [each], n)
            try:
                await self._commit(position, position, [alone], forgotten, may_repeat=True)
            except ContentRefused as error:
                await self._set_aside(position, unit, n, str(error))
        await self._sql.write(Batch(self._source, self._shard, position, after))

    async def _set_aside(self, position: Position, unit: Unit, n: int, why: str) -> None:
        """Keep what the database refuses in `jq_refused`, without its content if the database refuses that there,
        too."""
        row = self._refused(unit, n, why)
        try:
            await self._sql.write(Batch(self._source, self._shard, position, position, refused=[row]))
        except ContentRefused:  # the row is as large as what was refused
            bare = (*row[:-1], b"")
            await self._sql.write(Batch(self._source, self._shard, position, position, refused=[bare]))
        self._tell_refused(unit, n, why)

    async def _commit(
        self, position: Position, after: Position, units: Sequence[Unit], forgotten: Place, may_repeat: bool
    ) -> None:
        rows = self._rows(units, position.epoch if forgotten > START else 0, forgotten)
        batch = Batch(
            self._source,
            self._shard,
            position,
            after,
            rows.events,
            rows.jobs,
            rows.minutes,
            rows.schedules,
            refused=rows.refused,
            may_repeat=may_repeat,
        )
        with self._figures.writing(self._shard):
            await self._sql.write(batch)
        for unit in units:
            self._note(unit)

    def _note(self, unit: Unit) -> None:
        """Count what was written."""
        if unit.entry is None:
            self._tell_refused(unit, WHOLE, unit.why)
        for n, each in enumerate(unit.events, unit.first):
            if isinstance(each, Event):
                self._figures.told(each.verb)
            else:
                self._tell_refused(unit, n, each[2])

    def _rows(self, units: Sequence[Unit], branch: int, forgotten: Place) -> Rows:
        collector = Collector(self._source, self._shard, **self.choice._asdict(), branch=branch, counted=forgotten)
        unreadable = []
        for unit in units:
            if unit.entry is None:
                unreadable.append(self._refused(unit, WHOLE, unit.why))
            else:
                collector.add(*unit.place, unit.entry, unit.events, unit.first)
        rows = collector.rows()
        rows.refused += unreadable
        return rows

    def _refused(self, unit: Unit, n: int, why: str) -> Row:
        """A row of `jq_refused`."""
        raw = b"\0".join(unit.fields if n == WHOLE else unit.fields[2 + 2 * n : 4 + 2 * n])
        now_us = int(time.time() * 1e6)
        return (self._source, self._shard, *unit.place, n, now_us, why[:MOST_REASON], raw)

    def _tell_refused(self, unit: Unit, n: int, why: str) -> None:
        self._figures.refused(1)
        log.error("journal.refused", shard=self._shard, entry=str(unit.place), number=n, reason=why)

    async def _fetch_bodies(self, units: Iterable[Unit]) -> None:
        """Complete the events whose bodies were too large for the stream, if their records still belong to the same
        life."""
        slots = asyncio.Semaphore(_AT_A_TIME)

        async def fetch(events: list[Event | Unread], at: int, event: Event) -> None:
            async with slots:
                events[at] = await self._with_body(event)

        found = (
            fetch(unit.events, at, each)
            for unit in units
            for at, each in enumerate(unit.events)
            if isinstance(each, Event) and each.body is None and each.verb in WITH_BODY and each.after
        )
        await asyncio.gather(*found)

    async def _with_body(self, event: Event) -> Event:
        key = self._shards.keys[self._shard].job(event.id)
        try:
            raw = await self._shards.redis.read("GETRANGE", key, 0, -1)
            job = unpack(event.id, raw)
        except JobQueueError as error:
            if error.message.startswith("WRONGTYPE"):  # another program's key in its place
                return event
            raise
        except ValueError:
            return event
        if job.created != event.created or not job.body:
            return event
        return event._replace(body=job.body)
