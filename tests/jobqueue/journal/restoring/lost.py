"""A namespace whose events are drained into a journal, which loses its Redis and gets its jobs back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine

from buckets.access import Tokens
from buckets.events.restoring import Restoring
from buckets.events.switch import switch_on
from buckets.job import Job
from buckets.namespace import Switch
from buckets.pool.pool import Pool
from buckets.record import unpack
from buckets.redis.client import Redis
from jobqueue.access.tokens import from_json
from jobqueue.journal import tables
from jobqueue.journal.database import open_engine
from jobqueue.journal.reading.entries import Options
from jobqueue.journal.reading.figures import Figures
from jobqueue.journal.reading.running import Drain
from jobqueue.journal.reading.sql import Sql
from jobqueue.journal.restoring.reading import Choice, Reading, Sums
from jobqueue.journal.restoring.restore import Restore
from jobqueue.journal.restoring.runs import Passing, Run
from tests.jobqueue.journal.filling import found
from tests.kit.waiting import until

SOURCE = "jq"


@asynccontextmanager
async def draining(pool: Pool, redis_url: str, journal: str, **options: Any) -> AsyncIterator[None]:
    """A `journal run` while this is open."""
    await found(journal)
    sql, stop = Sql(journal), asyncio.Event()
    await sql.open()
    drain = Drain(pool, sql, Options(SOURCE, **options), Figures(), lambda: Redis(redis_url, 10.0))
    running = asyncio.create_task(drain.run(stop))
    try:
        yield
    finally:
        stop.set()
        await running
        await sql.close()


@dataclass
class World:
    """One namespace and its journal."""

    pool: Pool
    engine: AsyncEngine
    sums: Sums = field(default_factory=Sums)

    @property
    def reading(self) -> Reading:
        return Reading(self.engine, SOURCE, 10.0)

    async def drained(self) -> None:
        """Wait until the journal has all that was told until now, and all tokens as they are."""
        await Passing(self.reading).wait(await Restoring(self.pool, "").ask(()))
        stored = await Tokens(self.pool).read()
        records = [record for raw in stored.records.values() if (record := from_json(raw))]
        wanted = {(each.id, each.changed) for each in records}
        await until(lambda: self._has_tokens(wanted), every_s=0.02)

    async def _has_tokens(self, wanted: set[tuple[str, int]]) -> bool:
        async with self.engine.connect() as connection:
            rows = await connection.execute(select(tables.token.c.id, tables.token.c.changed))
        return wanted <= {(row.id, row.changed) for row in rows}

    async def is_walked(self) -> bool:
        """Whether the journal knows all that was there before it."""
        async with self.engine.connect() as connection:
            gaps = (await connection.execute(select(tables.gap.c.walked))).scalars().all()
        return bool(gaps) and all(gaps)

    async def lose(self) -> None:
        """Empty Redis; the service founds its namespace again."""
        for server in await self.pool.redis.servers():
            await server.read("FLUSHALL")
        for shard in range(len(self.pool.keys)):
            await self.pool.ensure_meta(shard)

    async def restore(self, *, dry: bool = False, cursor: Any = None, **choice: Any) -> Sums:
        """A run, by itself in this process."""
        chosen = Choice(**choice)
        run = None if dry else await Run.begin(self.reading, self.pool, chosen)
        restoring = Restoring(self.pool, run.actor if run else "")
        return await Restore(self.reading, restoring, chosen, run, rate=100_000).carry_out(cursor)

    async def counts(self, **choice: Any) -> dict[str, int]:
        """What a run has done."""
        return {name: number for name, number in (await self.restore(**choice)).counts.items() if number}

    async def row(self, job_id: str) -> Any:
        async with self.engine.connect() as connection:
            return (await connection.execute(select(tables.job).where(tables.job.c.id == job_id))).one()

    async def records(self) -> dict[str, Job]:
        """All jobs and tombstones of Redis, by id."""
        found: dict[str, Job] = {}
        for keys in self.pool.keys:
            prefix = f"{keys.tag}j:"
            for key in await self.pool.redis.read("KEYS", f"{prefix.replace('[', '?')}*"):
                raw = await self.pool.redis.read("GET", key)
                if raw is not None:
                    job_id = key.decode().removeprefix(prefix)
                    found[job_id] = unpack(job_id, raw)
        return found


@asynccontextmanager
async def world_of(pool: Pool, redis_url: str, journal: str, **options: Any) -> AsyncIterator[World]:
    """A world whose events are on and drained."""
    for shard in range(len(pool.keys)):
        await switch_on(pool, shard, Switch(1_000_000, False))
    async with draining(pool, redis_url, journal, **options):
        engine = await open_engine(journal)
        try:
            world = World(pool, engine)
            await until(world.is_walked, every_s=0.02)
            yield world
        finally:
            await engine.dispose()


def content(job: Job) -> tuple[object, ...]:
    """All of a job but what its indexes give it."""
    kind = job.kind
    numbers = (kind.ttr, kind.tries, kind.attempts, kind.deliveries, kind.step, job.lease, job.created, job.due)
    return kind.topic, kind.state, kind.priority, kind.cause, numbers, job.next, kind.optional, job.body


def contents(jobs: dict[str, Job], ids: Sequence[str] = ()) -> dict[str, tuple[object, ...]]:
    return {name: content(job) for name, job in jobs.items() if not ids or name in ids}
