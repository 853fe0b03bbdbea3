"""Instances that share the timers of a pool, any number of them in one process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

from buckets.pool.pool import Pool
from buckets.timers import locks, members
from buckets.timers.locks import Locks
from buckets.timers.members import LIFE_S, Members
from buckets.waiting.notifier import Notifier

APART_MS = 250


class Instance:
    """The members and the locks of all shards, as in a service. `tick` runs each once; within `running` they run by
    themselves."""

    def __init__(self, pool: Pool, notifier: Notifier | None = None) -> None:
        self.notifier = notifier or Notifier(pool)
        self.members = Members(pool, self.notifier)
        self.locks = [Locks(pool, self.notifier, self.members, shard) for shard in range(len(pool.keys))]

    async def tick(self) -> None:
        await self.members.tick()
        for each in self.locks:
            await each.tick()

    @property
    def held(self) -> list[bool]:
        """For all locks in order, whether they are ours."""
        return [event.is_set() for each in self.locks for event in each.held]

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        works = [each.run() for each in self.locks] + [self.members.run(), self.notifier.run()]
        tasks = [asyncio.create_task(work) for work in works]
        try:
            yield
        finally:
            await ended(tasks[-2:-1])
            await ended(tasks)


async def ended(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def sign(pool: Pool, token: str) -> list[str]:
    """Another instance signs the list of members; returns the live instances according to the answer."""
    return sorted(each.decode() for each in (await members.sign(pool, token, int(LIFE_S * 1000), APART_MS)).living)


async def take(pool: Pool, token: str, living: Sequence[str] = (), shard: int = 0) -> list[bool]:
    """Another instance takes all locks that it can get; returns for each whether it did."""
    wanted = [True] * pool.buckets
    return await locks.beat(pool, shard, token, 60_000, wanted=wanted, living=[each.encode() for each in living])


async def give_up(pool: Pool, token: str) -> None:
    """Another instance gives up its locks."""
    await locks.beat(pool, 0, token, 60_000, wanted=[False] * pool.buckets, living=[])
