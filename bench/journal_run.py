"""`make bench-journal-run`: how fast `jobqueue journal run` is with each kind of database, and how far it is behind.

First a backlog is drained. Then jobs are added, popped and finished in batches of 100, at a rate of events that is kept
up for some seconds, while the age of what is in SQL is sampled. `python -m bench.journal_run 300` sets others.
Redis, the load, the journal and the database share the machine.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import func, select

from bench.figures import show
from buckets.events.switch import switch_on
from buckets.job import NewJob
from buckets.namespace import Switch
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from jobqueue.journal.reading.sql import Sql
from jobqueue.journal.tables import event
from tests.jobqueue.journal.reading.process import JournalProcess
from tests.kit.databases import MariaDB, PostgreSQL, Server
from tests.kit.program import Missing
from tests.kit.redis_server import RedisServer

KINDS = ("sqlite", "postgresql", "mariadb")
RATES = (5_000, 20_000)
BACKLOG = 300_000  # events
_BODY = b'"' + b"x" * 98 + b'"'
_AT_ONCE = 100  # jobs of a script
_OF_A_LIFE = 3  # events
_SAMPLE_S = 0.1


class Cost(NamedTuple):
    """What a process has used."""

    cpu_s: float
    peak_mb: float


def cost(pid: int) -> Cost:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    peak = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    return Cost((int(fields[11]) + int(fields[12])) / 100, int(peak.split()[1]) / 1024)


@contextmanager
def databases(folder: Path, kinds: Sequence[str]) -> Iterator[dict[str, Callable[[], str]]]:
    """By kind, what makes the URL of an empty database. A server that is not installed is left out, and told."""
    with ExitStack() as stack:
        made: dict[str, Callable[[], str]] = {}
        files = iter(range(1_000))
        made["sqlite"] = lambda: f"sqlite:///{folder}/{next(files)}.db"
        for kind in (each for each in (PostgreSQL, MariaDB) if each.kind in kinds):
            try:
                server: Server = stack.enter_context(kind())
            except Missing as missing:
                print(missing)
                continue
            made[server.kind] = server.new_database
        yield made


class Load:
    """Whole lives of jobs, in batches."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.events = 0

    async def some(self) -> None:
        pool, first = self._pool, self.events
        await pool.add([NewJob(f"job-{first}-{n:03}", "orders", _BODY, retention_ms=0) for n in range(_AT_ONCE)])
        popped = (await pool.pop(["orders"], _AT_ONCE)).jobs
        await pool.finish([(job.id, job.lease) for job in popped])
        self.events += _OF_A_LIFE * _AT_ONCE

    async def at(self, rate: int, seconds: float) -> None:
        """Keep up a rate of events."""
        began, before = time.perf_counter(), self.events
        while (elapsed := time.perf_counter() - began) < seconds:
            if self.events - before < rate * elapsed:
                await self.some()
            else:
                await asyncio.sleep(0.002)


async def backlog(kind: str, url: str, number: int, folder: Path) -> None:
    """Drain what was told before."""
    with RedisServer(folder) as server:
        redis = Redis(server.url)
        pool = await opened(redis)
        load = Load(pool)
        while load.events < number:
            await load.some()
        sql = Sql(url)
        await sql.open()
        async with JournalProcess(server.url, url, folder / "log") as process:
            began = time.perf_counter()
            await drained(pool, sql)
            seconds = time.perf_counter() - began
            assert process.process
            used = cost(process.process.pid)
        told = await count(sql)
        print(
            f"{kind:10} backlog of {load.events:,} events: {load.events / seconds:8,.0f} a second with its start, "
            f"{1e6 * used.cpu_s / load.events:5.1f} us CPU an event, at most {used.peak_mb:.0f} MB"
        )
        assert told == load.events, (told, load.events)
        await sql.close()
        await pool.close()
        await redis.close()


async def opened(redis: Redis) -> Pool:
    pool = await Pool.open(redis)
    await switch_on(pool, 0, Switch(10_000_000))
    return pool


async def drained(pool: Pool, sql: Sql) -> None:
    now_us = await pool.now_us()
    while (position := await sql.position("jq", 0)) is None or position.time < now_us:  # noqa: ASYNC110 - elsewhere
        await asyncio.sleep(0.01)


async def count(sql: Sql) -> int:
    query = select(func.count()).select_from(event).where(event.c.branch >= 0)
    return int(await sql.run(lambda connection: connection.execute(query).scalar_one()))


async def steady(kind: str, url: str, rate: int, seconds: float, folder: Path) -> None:
    """Drain what is told meanwhile."""
    with RedisServer(folder) as server:
        redis = Redis(server.url)
        pool = await opened(redis)
        sql, load = Sql(url), Load(pool)
        await sql.open()
        async with JournalProcess(server.url, url, folder / "log") as process:
            await drained(pool, sql)
            assert process.process
            before = cost(process.process.pid)
            ages: list[float] = []
            sampling = asyncio.create_task(sample(pool, sql, ages))
            began = time.perf_counter()
            await load.at(rate, seconds)
            told = load.events / (time.perf_counter() - began)
            await drained(pool, sql)
            sampling.cancel()
            used = cost(process.process.pid)
        show(f"{kind}: age of what is in SQL at {told:,.0f} events a second", ages, "1 s at 5,000 events/s")
        cpu_us = 1e6 * (used.cpu_s - before.cpu_s) / load.events
        print(f"{'':10} {cpu_us:5.1f} us CPU an event, at most {used.peak_mb:.0f} MB (target: 200 MB)", flush=True)
        assert await count(sql) == load.events
        await sql.close()
        await pool.close()
        await redis.close()


async def sample(pool: Pool, sql: Sql, ages: list[float]) -> None:
    while True:
        position = await sql.position("jq", 0)
        assert position
        ages.append((await pool.now_us() - position.time) / 1000)
        await asyncio.sleep(_SAMPLE_S)


async def main(
    seconds: float, number: int = BACKLOG, rates: Sequence[int] = RATES, kinds: Sequence[str] = KINDS
) -> None:
    with tempfile.TemporaryDirectory(prefix="jq-bench-") as name, databases(Path(name), kinds) as made:
        for kind, new_url in made.items():
            await backlog(kind, new_url(), number, Path(name))
            for rate in rates:
                await steady(kind, new_url(), rate, seconds, Path(name))


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1]) if len(sys.argv) > 1 else 20))
