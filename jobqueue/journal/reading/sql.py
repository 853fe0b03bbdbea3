"""SQL for the readers of a process: batches are written through one store, one at a time, and everything else goes
through an engine.

If the database is away, it is tried again until it answers: nothing is acknowledged meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from math import inf
from typing import NamedTuple, TypeVar

import structlog
from sqlalchemy import Column, ColumnElement, Connection, Table, and_, func, insert, literal, or_, select, update
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, ProgrammingError
from sqlalchemy.ext.asyncio import AsyncEngine

from buckets.events.stream import START, Place
from buckets.job import LIVE
from buckets.layout import SCHEDULE
from jobqueue.journal import choices
from jobqueue.journal.choices import Change
from jobqueue.journal.database import open_engine, open_store
from jobqueue.journal.keeping import Keeper, Periods
from jobqueue.journal.reading.verdict import FORGOTTEN, LOST, UNKNOWN, gap_row, place_of
from jobqueue.journal.statements import columns
from jobqueue.journal.store import Away, Batch, Overtaken, Position, Store
from jobqueue.journal.tables import choice, event, gap, job, schedule

log = structlog.get_logger()

_SHORTEST_S, _LONGEST_S = 0.1, 10.0
_TOLD_AGAIN_S = 60.0
T = TypeVar("T")


class Gap(NamedTuple):
    """A gap; times are us."""

    shard: int
    kind: int
    after: Place
    upto: Place
    entries: int
    found: int
    walked: int | None


class Sql:
    """One journal. `open` connects to it; every method waits while the database is away."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._store: Store | None = None
        self._engine: AsyncEngine | None = None
        self._keeper: Keeper | None = None
        self._turn = asyncio.Lock()

    async def open(self) -> None:
        """Connect, and create the tables of an empty journal. Raises Refused."""
        await self._patiently(self._opened)

    async def _opened(self) -> None:
        async with self._turn:
            self._store = self._store or await open_store(self._url)
            self._engine = self._engine or await open_engine(self._url)

    async def close(self) -> None:
        if self._store:
            await self._store.close()
        if self._engine:
            await self._engine.dispose()

    async def position(self, source: str, shard: int) -> Position | None:
        """How far a shard is drained, or None if it never was."""
        return await self._patiently(lambda: self._in_turn(lambda store: store.position(source, shard)))

    async def write(self, batch: Batch) -> None:
        """Write a batch. Raises ContentRefused, and Overtaken, also if the batch was already written before the
        database went away."""
        await self._patiently(lambda: self._in_turn(lambda store: store.write(batch)))

    async def _in_turn(self, work: Callable[[Store], Awaitable[T]]) -> T:
        async with self._turn:
            assert self._store
            return await work(self._store)

    async def _patiently(self, work: Callable[[], Awaitable[T]]) -> T:
        pause, told = _SHORTEST_S, -inf
        while True:
            try:
                result = await work()
            except Away as error:
                if time.monotonic() - told >= _TOLD_AGAIN_S:
                    told = time.monotonic()
                    log.warning("database.lost", error=str(error))
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_S)
                continue
            if pause > _SHORTEST_S:
                log.info("database.found")
            return result

    async def run(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in a transaction of its own."""
        return await self._patiently(lambda: self._run(work))

    async def _run(self, work: Callable[[Connection], T]) -> T:
        assert self._engine
        try:
            async with self._engine.begin() as connection:
                return await connection.run_sync(work)
        except (DataError, IntegrityError, ProgrammingError):  # a defect, which a retry cannot fix
            raise
        except (DBAPIError, OSError) as error:
            raise Away(str(getattr(error, "orig", None) or error)) from error

    async def forgotten_until(self, source: str, shard: int) -> Place:
        """The last place that Redis has ever forgotten."""
        query = (
            select(gap.c.to_ms, gap.c.to_seq)
            .where(gap.c.source == source, gap.c.shard == shard, gap.c.kind == FORGOTTEN)
            .order_by(gap.c.to_ms.desc(), gap.c.to_seq.desc())
            .limit(1)
        )
        row = await self.run(lambda connection: connection.execute(query).first())
        return Place(*row) if row else START

    async def gaps(self, source: str) -> list[Gap]:
        """The lost and the forgotten ranges, in the order in which they were found."""
        query = select(gap).where(gap.c.source == source, gap.c.kind != UNKNOWN).order_by(gap.c.number)
        rows = await self.run(lambda connection: connection.execute(query).all())
        return [
            Gap(
                row.shard,
                row.kind,
                Place(row.from_ms, row.from_seq),
                Place(row.to_ms, row.to_seq),
                row.entries,
                row.found,
                row.walked,
            )
            for row in rows
        ]

    async def choices(self, source: str) -> list[Change]:
        """What is kept of each shard, and since when."""
        rows = await self.run(lambda connection: connection.execute(choices.query(source)).all())
        return choices.changes(rows)

    async def choose(self, source: str, change: Change) -> None:
        """Write that something else is kept from now on. Raises Overtaken if another reader has done so meanwhile."""
        (shard, since, (events, bodies)) = change
        values = {"source": source, "shard": shard, "since": since, "events": events, "bodies": int(bodies)}
        try:
            await self.run(lambda connection: connection.execute(insert(choice).values(values)) and None)
        except IntegrityError:
            raise Overtaken from None

    async def to_walk(self, source: str, shard: int) -> int | None:
        """The number of the newest gap that a walk must fill, or None if there is none."""
        query = select(func.max(gap.c.number)).where(*_unfilled(source, shard))
        return await self.run(lambda connection: connection.execute(query).scalar())

    async def is_walked(self, source: str, shard: int) -> bool:
        """Returns True if a shard has a position, and no walk is due."""
        return await self.position(source, shard) is not None and await self.to_walk(source, shard) is None

    async def keep(self, periods: Periods, now_ms: int) -> bool:
        """Delete a step of what is too old; returns True if there is more (see `Keeper.step`). A batch that waits goes
        before the next step."""
        return await self._patiently(lambda: self._keep(periods, now_ms))

    async def _keep(self, periods: Periods, now_ms: int) -> bool:
        assert self._engine
        self._keeper = self._keeper or Keeper(self._engine, periods)
        try:
            async with self._turn:
                return await self._keeper.step(now_ms)
        except (DBAPIError, OSError) as error:
            raise Away(str(getattr(error, "orig", None) or error)) from error

    async def ask_for_walk(self, source: str, shard: int, now_us: int) -> None:
        """Make the reader of a shard walk, in whichever process it runs. Does nothing if the shard was never
        drained."""
        position = await self.position(source, shard)
        if position:
            place = place_of(position)
            row = gap_row(source, shard, position.epoch, UNKNOWN, place, place, 0, now_us)
            values = dict(zip(columns(gap), row, strict=True))
            await self.run(lambda connection: connection.execute(insert(gap).values(values)) and None)

    async def walked(self, source: str, shard: int, number: int, now_us: int) -> None:
        """Mark the gaps up to a number as filled by a walk."""
        change = update(gap).where(*_unfilled(source, shard), gap.c.number <= number).values(walked=now_us)
        await self.run(lambda connection: connection.execute(change) and None)

    async def checksums(
        self, source: str, shard: int, after: Place, upto: Place
    ) -> dict[tuple[int, int, int], set[int]]:
        """By place, the checksums of the events that come after one place, up to another."""
        query = select(event.c.ms, event.c.seq, event.c.n, event.c.checksum).where(
            event.c.ms.between(after.ms, upto.ms), event.c.source == source, event.c.shard == shard, event.c.branch >= 0
        )
        rows = await self.run(lambda connection: connection.execute(query).all())
        found: dict[tuple[int, int, int], set[int]] = {}
        for ms, seq, n, checksum in rows:
            if after < (ms, seq) <= upto:
                found.setdefault((ms, seq, n), set()).add(checksum)
        return found

    async def unmet(
        self, source: str, shard: int, place: tuple[int, int, int], after: str, most: int
    ) -> list[tuple[str, int, str]]:
        """Live jobs and schedules of which nothing was recorded or met from a place on (which includes the number of an
        event): their ids, lives and topics, by id, up to `most` after the id `after`. Those whose last event Redis has
        forgotten are left out. The ids of schedules, `~` and the name, come after all others."""
        found: list[tuple[str, int, str]] = []
        if not after.startswith(SCHEDULE):
            found = await self._unmet(_is_unmet(job, source, shard, place), job.c.id, job.c.life, after, most)
            after = SCHEDULE
        if len(found) < most:
            where, name = _is_unmet(schedule, source, shard, place), schedule.c.name
            rows = await self._unmet(where, name, literal(0), after.removeprefix(SCHEDULE), most - len(found))
            found += [(f"{SCHEDULE}{each}", life, topic) for each, life, topic in rows]
        return found

    async def _unmet(
        self, where: ColumnElement[bool], name: Column[str], life: ColumnElement[int], after: str, most: int
    ) -> list[tuple[str, int, str]]:
        query = select(name, life, name.table.c.topic).where(where, name > after).order_by(name).limit(most)
        return [tuple(row) for row in await self.run(lambda connection: connection.execute(query).all())]

    async def still_unmet(self, source: str, ids: Sequence[str], place: tuple[int, int, int]) -> set[str]:
        """The ids, out of `ids`, of live jobs and schedules of which nothing was recorded or met from a place on."""
        names = [each.removeprefix(SCHEDULE) for each in ids if each.startswith(SCHEDULE)]
        of_jobs = select(job.c.id).where(job.c.source == source, job.c.id.in_(ids), _is_live_before(job, place))
        of_schedules = select(schedule.c.name).where(
            schedule.c.source == source, schedule.c.name.in_(names), _is_live_before(schedule, place)
        )

        def ask(connection: Connection) -> set[str]:
            lost = connection.execute(of_schedules).scalars() if names else ()
            return {*connection.execute(of_jobs).scalars(), *(f"{SCHEDULE}{name}" for name in lost)}

        return await self.run(ask)


def _unfilled(source: str, shard: int) -> tuple[ColumnElement[bool], ...]:
    return gap.c.source == source, gap.c.shard == shard, gap.c.kind.in_((LOST, UNKNOWN)), gap.c.walked.is_(None)


def _is_unmet(table: Table, source: str, shard: int, place: tuple[int, int, int]) -> ColumnElement[bool]:
    of_shard = and_(table.c.source == source, table.c.shard == shard)
    return and_(of_shard, _is_live_before(table, place), ~_is_forgotten(table))


def _is_live_before(table: Table, place: tuple[int, int, int]) -> ColumnElement[bool]:
    of, (ms, seq, n) = table.c, place
    earlier = or_(of.ms < ms, and_(of.ms == ms, or_(of.seq < seq, and_(of.seq == seq, of.n < n))))
    lives = of.state.in_([int(state) for state in LIVE]) if table is job else of.gone.is_(None)
    return and_(lives, earlier)


def _is_forgotten(table: Table) -> ColumnElement[bool]:
    of = table.c
    behind = or_(of.ms > gap.c.from_ms, and_(of.ms == gap.c.from_ms, of.seq > gap.c.from_seq))
    upto = or_(of.ms < gap.c.to_ms, and_(of.ms == gap.c.to_ms, of.seq <= gap.c.to_seq))
    same = and_(gap.c.source == of.source, gap.c.shard == of.shard, gap.c.kind == FORGOTTEN)
    return select(gap.c.number).where(same, behind, upto).exists()
