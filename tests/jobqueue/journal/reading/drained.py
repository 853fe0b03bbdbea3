"""A journal that is drained in a test's own process, and what is in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy import Table, select

from buckets.events.switch import switch_on
from buckets.namespace import Switch
from buckets.redis.client import Redis
from buckets.shards import Shards
from jobqueue.journal.keeping import Periods
from jobqueue.journal.reading.entries import Options
from jobqueue.journal.reading.figures import Figures
from jobqueue.journal.reading.running import Drain
from jobqueue.journal.reading.sql import Sql
from jobqueue.journal.store import Position
from jobqueue.journal.tables import event, gap, job, refused
from tests.jobqueue.journal.filling import found

SOURCE = "jq"


class Journal:
    """A journal, and a drain that may run into it."""

    def __init__(self, shards: Shards, url: str, redis_url: str, options: Options) -> None:
        self.shards, self.url, self._redis_url = shards, url, redis_url
        self.options = options
        self.sql = Sql(url)
        self.figures = Figures()
        self.periods: Periods | None = None
        """For how long drains keep what is written; None: for ever."""
        self._running: list[asyncio.Task[None]] = []

    def new_drain(self) -> Drain:
        return Drain(self.shards, self.sql, self.options, self.figures, lambda: Redis(self._redis_url), self.periods)

    @asynccontextmanager
    async def draining(self) -> AsyncIterator[Drain]:
        """Drain until the block is left, then stop in order."""
        drain = self.new_drain()
        stop = asyncio.Event()
        running = asyncio.create_task(drain.run(stop))
        self._running.append(running)
        try:
            yield drain
        finally:
            stop.set()
            self._running.remove(running)
            await running

    async def drain(self) -> None:
        """Drain all that was told until now, and walk if that is due."""
        async with self.draining():
            await self.until_drained()

    async def until_drained(self, within_s: float = 20.0) -> None:
        """Wait until all is here that was told until now, and no walk is due."""
        now_us = await self.shards.redis.read("TIME")
        target = int(now_us[0]) * 1_000_000 + int(now_us[1])
        async with asyncio.timeout(within_s):
            for shard in range(len(self.shards.keys)):
                while not await self._is_drained(shard, target):
                    assert not any(running.done() for running in self._running), "a drain has ended"
                    await asyncio.sleep(0.01)

    async def _is_drained(self, shard: int, target_us: int) -> bool:
        position = await self.position(shard)
        if position is None or position.time < target_us:
            return False
        return await self.sql.to_walk(SOURCE, shard) is None

    async def position(self, shard: int = 0) -> Position | None:
        return await self.sql.position(SOURCE, shard)

    async def rows(self, table: Table) -> list[dict[str, Any]]:
        """The rows of a table, by its key."""
        query = select(table).order_by(*table.primary_key.columns)
        found = await self.sql.run(lambda connection: connection.execute(query).mappings().all())
        return [dict(row) for row in found]

    async def events(self) -> list[dict[str, Any]]:
        """All but those of walks, in their order."""
        return [row for row in await self.rows(event) if row["branch"] >= 0]

    async def jobs(self) -> dict[str, dict[str, Any]]:
        return {row["id"]: row for row in await self.rows(job)}

    async def gaps(self) -> list[dict[str, Any]]:
        return await self.rows(gap)

    async def refused(self) -> list[dict[str, Any]]:
        return await self.rows(refused)


async def switched_on(shards: Shards, entries: int = 100_000) -> None:
    for shard in range(len(shards.keys)):
        await switch_on(shards, shard, Switch(entries))


@asynccontextmanager
async def opened(shards: Shards, url: str, redis_url: str, **options: Any) -> AsyncIterator[Journal]:
    """A journal, with its tables."""
    await found(url)
    journal = Journal(shards, url, redis_url, Options(source=SOURCE, linger_s=0.001, **options))
    await journal.sql.open()
    try:
        yield journal
    finally:
        await journal.sql.close()
