"""The walk of a shard: reads all its records, at first and after a gap, for what no event has told.

Each step reads some records and the last place of the stream in one script. So what it has read has an exact place, and
a row of a job takes it where it is not newer. Then jobs that live in the journal and were not met are asked for once
more: one of which nothing was told until then, and that Redis does not know, has vanished.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import structlog

from buckets.errors import JobQueueError
from buckets.events.codec import Entry, Event, Unreadable, read_event
from buckets.events.stream import Place, Records, Stream
from buckets.job import Verb
from buckets.keys import FAMILIES
from buckets.pages import Pages
from buckets.shards import Shards
from jobqueue.journal.reading.options import Options
from jobqueue.journal.reading.sql import Sql
from jobqueue.journal.reading.verdict import place_of
from jobqueue.journal.rows import WALKED, Collector, Unread
from jobqueue.journal.store import Batch, Position

log = structlog.get_logger()

FIRST = 1_000_000
"""The number of the first record of a walk: behind all events of the entry that it was read at."""
_LOOK_S = 5.0
_AT_ONCE = 100  # records of a script: less than 1 ms of Redis
_OF_A_STEP = 1_000  # records
_REST = 1.0  # for each second of Redis's work
_INSTANCE = "journal"


class _Unmet(NamedTuple):
    """A job that lives by the journal and was not met."""

    id: str
    life: int
    topic: str


@dataclass(slots=True)
class _Asked:
    """Jobs that were asked for once more and that Redis does not know."""

    jobs: Sequence[_Unmet]
    records: Records


class Walk:
    """The walks of one shard, a step at a time, between batches."""

    def __init__(self, shards: Shards, shard: int, stream: Stream, sql: Sql, options: Options) -> None:
        self._shards, self._shard, self._stream, self._sql, self._options = shards, shard, stream, sql, options
        self._source = options.source
        self._looked = float("-inf")
        self._number: int | None = None
        self.reset()

    def reset(self) -> None:
        """Begin from the first record, if there is a walk to be done."""
        self._looked = float("-inf")
        self._ids: AsyncIterator[list[str]] | None = None
        self._begun: Place | None = None
        self._next = FIRST
        self._is_met = False
        self._last_id = ""
        self._asked: _Asked | None = None

    async def is_due(self) -> bool:
        """Whether there is something to walk for."""
        now = asyncio.get_running_loop().time()
        if self._number is None and now - self._looked > _LOOK_S:
            self._looked = now
            self._number = await self._sql.to_walk(self._source, self._shard)
        return self._number is not None

    async def step(self, position: Position) -> Position:
        """Read some records, or ask for some jobs, and write them; returns the position."""
        try:
            if not self._is_met:
                return await self._meet(position)
            return await self._vanish(position)
        except JobQueueError:
            self.reset()  # a scan does not go on elsewhere
            raise

    async def _meet(self, position: Position) -> Position:
        if self._ids is None or self._begun is None:
            self._begun = (await self._stream.records([])).place
            self._ids = self._scanned()
        collector = self._collector()
        found = 0
        async for ids in self._ids:
            found += await self._read(ids, collector)
            if found >= _OF_A_STEP:
                break
        else:
            self._is_met = True
        return await self._write(position, collector)

    async def _scanned(self) -> AsyncIterator[list[str]]:
        prefix = self._shards.keys[self._shard].tag + FAMILIES["JOB"]
        pattern = "".join(f"\\{each}" if each in "\\*?[" else each for each in prefix) + "*"
        async for page in Pages(self._shards.redis, _REST).keys(pattern):
            yield [key.decode("utf-8", "replace").removeprefix(prefix) for key in page]

    async def _read(self, ids: Sequence[str], collector: Collector) -> int:
        """Read records; how many there were."""
        pages, found = Pages(self._shards.redis, _REST), 0
        while ids:
            read = await pages.step(self._stream.records(ids[:_AT_ONCE]))
            for job_id, record in zip(ids, read.records, strict=False):
                if record:
                    self._add(collector, read, job_id, record)
                    found += 1
            ids = ids[len(read.records) :]
        return found

    def _add(self, collector: Collector, read: Records, job_id: str, record: bytes) -> None:
        entry = Entry(Verb.WALK, True, read.now_us, _INSTANCE, "")
        event: Event | Unread
        try:
            event = read_event(entry, job_id.encode(), record)
        except Unreadable as error:
            event = (job_id.encode(), record, str(error))
        collector.add(*read.place, entry, [event], self._next)
        self._next += 1

    async def _vanish(self, position: Position) -> Position:
        """Ask for a page of unmet jobs, or write those that nothing was told of until the place of the answer."""
        assert self._begun and self._number
        if self._asked:
            if place_of(position) < self._asked.records.place:
                return position
            asked, self._asked = self._asked, None
            return await self._write_vanished(position, asked)
        if place_of(position) < self._begun:
            return position
        unmet = [_Unmet(*row) for row in await self._sql.unmet(*self._key, self._met_from, self._last_id, _AT_ONCE)]
        if not unmet:
            await self._end()
            return position
        self._last_id = unmet[-1].id
        return await self._ask(position, unmet)

    @property
    def _key(self) -> tuple[str, int]:
        return self._source, self._shard

    @property
    def _met_from(self) -> tuple[int, int, int]:
        assert self._begun
        return (*self._begun, FIRST)

    async def _ask(self, position: Position, unmet: Sequence[_Unmet]) -> Position:
        collector = self._collector()
        gone: list[_Unmet] = []
        records = None
        while unmet:
            records = await self._stream.records([each.id for each in unmet])
            for each, record in zip(unmet, records.records, strict=False):
                if record:
                    self._add(collector, records, each.id, record)
                else:
                    gone.append(each)
            unmet = unmet[len(records.records) :]
        if gone and records:
            self._asked = _Asked(gone, records)
        return await self._write(position, collector)

    async def _write_vanished(self, position: Position, asked: _Asked) -> Position:
        still = await self._sql.still_unmet(*self._key, [each.id for each in asked.jobs], self._met_from)
        collector = self._collector()
        entry = Entry(Verb.VANISHED, True, asked.records.now_us, _INSTANCE, "")
        for each in asked.jobs:
            if each.id in still:
                checksum = zlib.crc32(f"{each.id} {each.life}".encode())
                event = Event(
                    each.id, Verb.VANISHED, 0, 0, entry.at, 0, each.topic, created=each.life, checksum=checksum
                )
                collector.add(*asked.records.place, entry, [event], self._next)
                self._next += 1
        return await self._write(position, collector)

    def _collector(self) -> Collector:
        options = self._options
        return Collector(*self._key, branch=WALKED, events=options.events, bodies=options.bodies)

    async def _write(self, position: Position, collector: Collector) -> Position:
        rows = collector.rows()
        if rows.events or rows.jobs or rows.refused:
            await self._sql.write(
                Batch(*self._key, position, position, rows.events, rows.jobs, (), (), rows.refused, may_repeat=True)
            )
        return position

    async def _end(self) -> None:
        assert self._number
        now_us = await self._shards.now_us()
        await self._sql.walked(*self._key, self._number, now_us)
        log.info("journal.walked", shard=self._shard, records=self._next - FIRST)
        self._number = None
        self.reset()
