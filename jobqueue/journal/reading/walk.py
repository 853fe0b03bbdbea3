"""The walk of a shard: reads the records of all its jobs and schedules, at first and after a gap, to learn what no
event has recorded.

Each step reads some records and the last place of the stream in one script. So every record has an exact place, and is
written unless its row in the journal is newer. Then Redis is asked once more for the live jobs and schedules of the
journal that the walk has not met: if Redis does not know one, and nothing was recorded of it until then, it has
vanished. The id of a schedule is `~` and its name.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import NamedTuple

import structlog

from buckets.errors import JobQueueError
from buckets.events.codec import Entry, Event, Unreadable, read_event, read_schedule
from buckets.events.stream import START, Place, Records, Stream
from buckets.job import Verb
from buckets.keys import FAMILIES
from buckets.layout import SCHEDULE
from buckets.pages import Pages
from buckets.shards import Shards
from jobqueue.journal.choices import Choice
from jobqueue.journal.reading.entries import MOST_REASON, Options
from jobqueue.journal.reading.sql import Sql
from jobqueue.journal.reading.verdict import place_of
from jobqueue.journal.rows import WALKED, Collector, Rows, Unread
from jobqueue.journal.store import Batch, ContentRefused, Position, Row

log = structlog.get_logger()

FIRST = 1_000_000
"""The number of the first record of a walk, which is after all events of the entry at whose place it was read."""
_LOOK_S = 5.0
_AT_ONCE = 100  # records per script: less than 1 ms of Redis's time
_OF_A_STEP = 1_000  # records
_REST = 1.0  # seconds of rest for each second of Redis's work
_INSTANCE = "journal"


class _Met(NamedTuple):
    """What a walk has read of a job."""

    place: Place
    entry: Entry
    event: Event | Unread
    n: int


class _Asked(NamedTuple):
    """Jobs for which Redis was asked once more, and which it does not know: by id, their lives and topics."""

    place: Place
    """The place at which Redis was asked."""
    now_us: int
    jobs: Mapping[str, tuple[int, str]]


class Walk:
    """The walks of one shard, a step at a time, between batches."""

    def __init__(self, shards: Shards, shard: int, stream: Stream, sql: Sql, options: Options) -> None:
        self._shards, self._shard, self._stream, self._sql = shards, shard, stream, sql
        self._source = options.source
        self.choice = Choice()
        """What is kept."""
        self._looked = float("-inf")
        self._number: int | None = None
        self.reset()

    def reset(self) -> None:
        """Begin from the first record, if a walk is due."""
        self._looked = float("-inf")
        self._ids: AsyncIterator[list[str]] | None = None
        self._begun: Place | None = None
        self._next = FIRST
        self._is_met = False
        self._last_id = ""
        self._asked: _Asked | None = None
        self._read_at = Records(0, START, [])

    async def is_due(self) -> bool:
        """Whether a walk is due."""
        now = asyncio.get_running_loop().time()
        if self._number is None and now - self._looked > _LOOK_S:
            self._looked = now
            self._number = await self._sql.to_walk(self._source, self._shard)
        return self._number is not None

    async def step(self, position: Position, *, is_all: bool) -> Position:
        """Read some records, or ask for some jobs, and write them; returns the position. `is_all`: True if everything
        that was recorded before this step is in the journal, whatever its position is."""
        try:
            if not self._is_met:
                await self._meet(position)
            elif is_all or (self._waits_for and place_of(position) >= self._waits_for):
                await self._vanish(position)
        except JobQueueError:
            self.reset()  # a scan cannot continue on another Redis
            raise
        return position

    @property
    def _waits_for(self) -> Place | None:
        """The place that must have been drained before the next step."""
        return self._asked.place if self._asked else self._begun

    async def _meet(self, position: Position) -> None:
        if self._ids is None or self._begun is None:
            self._begun = (await self._stream.records([])).place
            self._ids = self._scanned()
        met: list[_Met] = []
        async for ids in self._ids:
            await self._read(ids, met)
            if len(met) >= _OF_A_STEP:
                break
        else:
            self._is_met = True
        await self._write(position, met)

    async def _scanned(self) -> AsyncIterator[list[str]]:
        prefix = self._shards.keys[self._shard].tag + FAMILIES["JOB"]
        async for page in Pages(self._shards.redis, _REST).keys(f"{prefix}*"):  # a namespace needs no escaping
            yield [key.decode("utf-8", "replace").removeprefix(prefix) for key in page]
        async for names in self._stream.schedules():
            yield [f"{SCHEDULE}{name}" for name in names]

    async def _read(self, ids: Sequence[str], met: list[_Met]) -> list[str]:
        """Read the records of jobs; returns the ids of those that have none."""
        pages, gone = Pages(self._shards.redis, _REST), []
        while ids:
            read = await pages.step(self._stream.records(ids[:_AT_ONCE]))
            for job_id, record in zip(ids, read.records, strict=False):
                if record:
                    met.append(self._met(read, job_id, record))
                else:
                    gone.append(job_id)
            ids = ids[len(read.records) :]
            self._read_at = read
        return gone

    def _met(self, read: Records, job_id: str, record: bytes) -> _Met:
        entry = Entry(Verb.WALK, True, read.now_us, _INSTANCE, "")
        event: Event | Unread
        read_value = read_schedule if job_id.startswith(SCHEDULE) else read_event
        try:
            event = read_value(entry, job_id.encode(), record)
        except Unreadable as error:
            event = (job_id.encode(), record, str(error))
        return self._numbered(read.place, entry, event)

    def _numbered(self, place: Place, entry: Entry, event: Event | Unread) -> _Met:
        self._next += 1
        return _Met(place, entry, event, self._next)

    async def _vanish(self, position: Position) -> None:
        """Ask Redis for a page of unmet jobs; or, after that, write as vanished those that Redis does not know, and of
        which nothing was recorded until its answer."""
        if self._asked:
            asked, self._asked = self._asked, None
            await self._write(position, await self._vanished(asked))
            return
        rows = await self._sql.unmet(self._source, self._shard, self._met_from, self._last_id, _AT_ONCE)
        if not rows:
            await self._end()
            return
        unmet = {job_id: (life, topic) for job_id, life, topic in rows}
        self._last_id = rows[-1][0]
        met: list[_Met] = []
        gone = await self._read(list(unmet), met)
        await self._write(position, met)
        if gone:
            read = self._read_at
            self._asked = _Asked(read.place, read.now_us, {job_id: unmet[job_id] for job_id in gone})

    @property
    def _met_from(self) -> tuple[int, int, int]:
        """The place at which the walk began: everything that was met or recorded since then has this place or a later
        one."""
        assert self._begun
        return (*self._begun, FIRST)

    async def _vanished(self, asked: _Asked) -> list[_Met]:
        still = await self._sql.still_unmet(self._source, list(asked.jobs), self._met_from)
        entry = Entry(Verb.VANISHED, True, asked.now_us, _INSTANCE, "")
        return [
            self._numbered(asked.place, entry, _vanished(job_id, life, topic, entry.at))
            for job_id, (life, topic) in asked.jobs.items()
            if job_id in still
        ]

    async def _write(self, position: Position, met: Sequence[_Met]) -> None:
        if not met:
            return
        collector = Collector(self._source, self._shard, branch=WALKED, **self.choice._asdict())
        for each in met:
            collector.add(*each.place, each.entry, [each.event], each.n)
        rows = collector.rows()
        try:
            await self._sql.write(self._batch(position, rows))
        except ContentRefused as error:
            if len(met) == 1:
                refused = [self._refused(met[0], str(error))]
                await self._sql.write(self._batch(position, Rows([], [], [], [], refused)))
            else:
                half = len(met) // 2
                await self._write(position, met[:half])
                await self._write(position, met[half:])

    def _batch(self, position: Position, rows: Rows) -> Batch:
        return Batch(
            *(self._source, self._shard, position, position, rows.events, rows.jobs),
            schedules=rows.schedules,
            refused=rows.refused,
            may_repeat=True,
        )

    def _refused(self, met: _Met, why: str) -> Row:
        log.error("journal.refused", shard=self._shard, entry=str(met.place), number=met.n, reason=why)
        raw = met.event.id.encode() if isinstance(met.event, Event) else b"\0".join(met.event[:2])
        return (self._source, self._shard, *met.place, met.n, met.entry.at, why[:MOST_REASON], raw)

    async def _end(self) -> None:
        assert self._number
        await self._sql.walked(self._source, self._shard, self._number, await self._shards.now_us())
        log.info("journal.walked", shard=self._shard, records=self._next - FIRST)
        self._number = None
        self.reset()


def _vanished(job_id: str, life: int, topic: str, at: int) -> Event:
    checksum = zlib.crc32(f"{job_id} {life}".encode())
    return Event(job_id, Verb.VANISHED, 0, 0, at, 0, topic, created=life, checksum=checksum)
