"""Waiting pops: parked on a namespace whose subscriptions stand, or that hears only what a test says."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

from buckets.job import Job
from buckets.notifier import Notifier
from buckets.pool import Pool
from buckets.pop_search import Popped
from buckets.topics import Topics
from buckets.waiting import Waiting
from tests.waiting import PATIENCE_S, until

LONG_S = 60.0  # longer than any test is patient
Parked = asyncio.Task[Popped]


def waiting_on(pool: Pool) -> Waiting:
    """The waiting pops of a process whose notifier does not run yet."""
    return Waiting(pool, Notifier(pool))


@contextlib.asynccontextmanager
async def hearing(pool: Pool) -> AsyncIterator[Waiting]:
    """The waiting pops of a process that hears all shards."""
    waiting = waiting_on(pool)
    listening = asyncio.create_task(waiting.notifier.run())
    await until(waiting.notifier.connected.is_set)
    yield waiting
    waiting.close()
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)


async def park(
    waiting: Waiting, topics: Sequence[str] = ("t",), count: int = 1, wait_s: float = LONG_S, worker: str = ""
) -> Parked:
    """A pop that waits: it has looked twice and found nothing."""
    before = waiting.parked
    task = asyncio.create_task(waiting.pop(topics, count, wait_s, worker=worker))
    await until(lambda: waiting.parked == before + 1)
    await Topics(waiting._pool).stats()  # answered behind its second look
    return task


async def jobs_of(parked: Parked) -> list[Job]:
    """What a pop that waited answers."""
    async with asyncio.timeout(PATIENCE_S):
        return (await parked).jobs


async def job_of(parked: Parked) -> Job:
    """The one job that a pop got which waited."""
    (job,) = await jobs_of(parked)
    return job


async def told(waiting: Waiting, pool: Pool, shard: int = 0) -> bool:
    """Whether all that the shard said before has been heard: a message of our own came through."""
    waiting.notifier.free(shard).clear()
    await pool.redis.read("SPUBLISH", pool.keys[shard].bell, "free")
    await until(waiting.notifier.free(shard).is_set)
    return True
