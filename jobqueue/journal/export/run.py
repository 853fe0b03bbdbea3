"""A run of the export: what must be written, and what exists already.

The events of a day (UTC, by the ids of their entries) are in files by shard, each of which begins where the one before
ended, so a run continues where the last one ended. Once all shards are drained beyond the day, late events are added,
and the day is closed: later runs skip it. Deliveries are written when their day is over, as they end later than they
begin. `Source` reads one source of the journal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import pyarrow as pa
from sqlalchemy import Select, func, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from jobqueue.journal import tables
from jobqueue.journal.choices import has_gone_back
from jobqueue.journal.database import open_engine
from jobqueue.journal.export import lines
from jobqueue.journal.export.folder import Folder, Part, Place, ShardFiles, by_shard
from jobqueue.journal.export.forms import Gap, behind, forms
from jobqueue.journal.keeping import DAY_MS, day_of
from jobqueue.journal.url import Refused

_event, _position, _gap = tables.event.c, tables.position.c, tables.gap.c


class Source:
    """A source as the journal has it now."""

    def __init__(self, connection: AsyncConnection, name: str, places: dict[int, Place], time: int) -> None:
        self.connection, self.name, self._time = connection, name, time
        self.places = places
        """The last entry of each shard in the journal."""
        self.forms = forms([])

    @classmethod
    async def of(cls, connection: AsyncConnection, name: str | None) -> Source:
        """The source with a name, or the only source for None. Raises Refused."""
        rows = (await connection.execute(select(tables.position))).all()
        names = sorted({row.source for row in rows})
        if not names:
            raise Refused("the journal is empty; `jobqueue journal run` fills it")
        if name not in names and (name is not None or len(names) > 1):
            what = "its source must be named" if name is None else f"it has no source {name}"
            raise Refused(f"the journal has {', '.join(names)}: {what}")
        own = [row for row in rows if row.source == (name or names[0])]
        places = {row.shard: Place(row.ms, row.seq) for row in own}
        made = cls(connection, name or names[0], places, min(row.time for row in own))
        made.forms = forms(await made._taken_back())
        return made

    async def _taken_back(self) -> list[Gap]:
        which = text(has_gone_back(tables.gap.name)), _gap.source == self.name
        query = select(*(_gap[name] for name in Gap._fields)).where(*which)
        return [Gap(*row) for row in await self.connection.execute(query)]

    def is_drained(self, day: date, beyond_ms: int) -> bool:
        """Returns True if the journal has everything that was recorded in a day, and in the `beyond_ms` after it."""
        return self._time >= (_begin(day) + DAY_MS + beyond_ms) * 1000

    @property
    def last_day(self) -> date:
        return day_of(max(self.places.values()).ms)

    async def first_day(self) -> date | None:
        """The day of the first event, or None if there are no events."""
        query = select(_event.ms).where(_event.source == self.name, _event.branch >= 0)
        found = await self.connection.scalar(query.order_by(_event.ms).limit(1))
        return None if found is None else day_of(found)

    def rows(self, kind: str, day: date, from_ms: int = 0, shards: Collection[int] = ()) -> Select[Any]:
        """The query for a day's events or deliveries, in the order of their entries."""
        form = self.forms[kind]
        of = form.source.c
        query = self._of_day(select(*form.columns), kind, day).where(of.ms >= from_ms)
        query = query.where(of.shard.in_(shards)) if shards else query
        return query.order_by(of.ms, of.source, of.shard, of.seq, of.n)

    async def counts(self, day: date) -> dict[int, int]:
        """The number of a day's events, by shard."""
        query = self._of_day(select(_event.shard, func.count()), "events", day).group_by(_event.shard)
        return {row[0]: row[1] for row in await self.connection.execute(query)}

    def jobs(self, shards: Collection[int]) -> Select[Any]:
        """The query for the jobs of some shards."""
        form = self.forms["jobs"]
        return select(*form.columns).where(form.source.c.source == self.name, form.source.c.shard.in_(shards))

    def _of_day(self, query: Select[Any], kind: str, day: date) -> Select[Any]:
        of, begin = self.forms[kind].source.c, _begin(day)
        query = query.where(of.ms >= begin, of.ms < begin + DAY_MS, of.source == self.name)
        return query.where(of.branch >= 0) if kind == "events" else query  # without walked records, which are not moves


def _begin(day: date) -> int:
    """When a day begins, in ms since the epoch."""
    return (day - date(1970, 1, 1)).days * DAY_MS


_OPEN_MS = {
    "events": 60_000,  # the clocks of two Redis servers differ, and one may take over from the other
    "deliveries": 3_600_000,  # a delivery that has not ended by then is written without its end
}
"""For how long a day stays open after its end."""
_KEY = ["ms", "seq", "n", "branch"]
Report = Callable[[str, int], None]
"""Is called with what is being written, and how many rows of it were read, in any thread."""


@dataclass
class Written:
    """What a run has written."""

    rows: int = 0
    files: int = 0
    closed: int = 0
    """How many days were closed."""


@asynccontextmanager
async def opened(url: str, out: str, source: str | None) -> AsyncIterator[Export]:
    """The export of a source (None for the only one) to a folder. Raises Refused, Foreign, Away, OSError."""
    engine = await open_engine(url)
    try:
        async with engine.connect() as connection:
            of = await Source.of(connection, source)
            folder = Folder(out, of.name)
            with folder.alone():
                yield Export(of, folder)
    finally:
        await engine.dispose()


class Export:
    """The export of one source to one folder."""

    def __init__(self, source: Source, folder: Folder) -> None:
        self._source, self._folder = source, folder
        self._written = Written()
        self._report: Report = _silent

    async def write(self, kind: str, since: date | None, until: date | None, report: Report) -> Written:
        """Write jobs, or the events or deliveries of the days from `since` on and before `until`. Raises Away, Foreign,
        OSError."""
        self._written, self._report = Written(), report
        await (self._jobs() if kind == "jobs" else self._days(kind, since, until))
        return self._written

    async def _days(self, kind: str, since: date | None, until: date | None) -> None:
        day = await self._source.first_day()
        if day is None:
            return
        day, last = max(day, since or day), self._source.last_day
        while day <= last and (until is None or day < until):
            inner = f"{kind}/date={day}"
            is_over = self._source.is_drained(day, _OPEN_MS[kind])
            if (is_over or kind == "events") and not self._folder.is_closed(inner):
                await self._day(kind, day, inner, is_over=is_over)
            day += timedelta(days=1)

    async def _day(self, kind: str, day: date, inner: str, *, is_over: bool) -> None:
        parts = self._folder.parts(inner)
        newest = {part.shard: part for part in parts if not part.mark}
        ends = {shard: self._folder.footer(inner, part)[0] for shard, part in newest.items()}
        files = ShardFiles(self._folder, inner)

        def take(shard: int, table: pa.Table) -> None:
            fresh = table.filter(behind(table["ms"], table["seq"], ends[shard])) if shard in ends else table
            files.add(shard, fresh)

        from_ms = min(ends[shard].ms if shard in ends else 0 for shard in self._source.places)
        await self._write(files, kind, self._source.rows(kind, day, from_ms), inner, take)
        if is_over:
            if parts and kind == "events":
                await self._add_late(day, inner)
            self._folder.close(inner)
            self._written.closed += 1

    async def _add_late(self, day: date, inner: str) -> None:
        """Write the events that arrived after later places were already exported. This happens after a failover, if one
        Redis recorded events at places that the other one had already passed."""
        parts = self._folder.parts(inner)
        rows: Counter[int] = Counter()
        for part in parts:
            rows[part.shard] += self._folder.footer(inner, part)[1]
        shards = [shard for shard, number in (await self._source.counts(day)).items() if number > rows[shard]]
        files = ShardFiles(self._folder, inner, mark="-late")

        def take(shard: int, table: pa.Table) -> None:
            files.add(shard, self._unknown(table, inner, [part for part in parts if part.shard == shard]))

        if shards:
            await self._write(files, "events", self._source.rows("events", day, shards=shards), inner, take)

    def _unknown(self, table: pa.Table, inner: str, parts: Sequence[Part]) -> pa.Table:
        """The rows that are in no file."""
        between = table["ms"][0].as_py(), table["ms"][-1].as_py()
        known = pa.concat_tables(
            [
                table.schema.empty_table().select(_KEY),
                *(self._folder.read(inner, part, _KEY, between) for part in parts),
            ]
        )
        numbered = table.select(_KEY).append_column("row", pa.array(range(len(table))))
        return table.take(sorted(numbered.join(known, _KEY, join_type="left anti")["row"].to_pylist()))

    async def _jobs(self) -> None:
        """Write the newest life of each job, replacing what an earlier run has written."""
        there, places = self._folder.parts("jobs"), self._source.places
        files = ShardFiles(self._folder, "jobs", places)
        stale = [shard for shard, place in places.items() if Part(shard, place) not in there]
        if stale:
            await self._write(files, "jobs", self._source.jobs(stale), "jobs", files.add)
        for part in there:
            if part.shard not in places or part.first != places[part.shard]:
                self._folder.drop("jobs", part)

    async def _write(
        self, files: ShardFiles, kind: str, query: Select[Any], where: str, take: Callable[[int, pa.Table], None]
    ) -> None:
        form, read = self._source.forms[kind], 0

        def take_batch(batch: pa.RecordBatch) -> None:
            nonlocal read
            for shard, table in by_shard(form.table(batch)):
                take(shard, table)
            read += len(batch)
            self._report(where, read)

        try:
            await lines.read(self._source.connection, query, form.columns, take_batch)
            files.finish()
        finally:
            files.abandon()
            self._written.rows += files.rows
            self._written.files += files.files


def _silent(what: str, rows: int) -> None:
    """No report."""
