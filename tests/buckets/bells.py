"""Bells that hear, and pops that wait for them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

from buckets.bell import Bell
from buckets.job import Job
from buckets.pool import Pool
from buckets.pop_search import Popped
from buckets.topics import Topics
from tests.waiting import PATIENCE_S, until

LONG_S = 60.0  # longer than any test is patient
Parked = asyncio.Task[Popped]


@contextlib.asynccontextmanager
async def hearing(pool: Pool) -> AsyncIterator[Bell]:
    """A bell that hears."""
    bell = Bell(pool)
    listening = asyncio.create_task(bell.run())
    await until(bell.connected.is_set)
    yield bell
    bell.close()
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)


async def park(
    bell: Bell, topics: Sequence[str] = ("t",), count: int = 1, wait_s: float = LONG_S, worker: str = ""
) -> Parked:
    """A pop that waits: it has looked twice and found nothing."""
    before = bell.parked
    task = asyncio.create_task(bell.pop(topics, count, wait_s, worker=worker))
    await until(lambda: bell.parked == before + 1)
    await Topics(bell._pool).stats()  # answered behind its second look
    return task


async def jobs_of(parked: Parked) -> list[Job]:
    """What a pop that waited answers."""
    async with asyncio.timeout(PATIENCE_S):
        return (await parked).jobs


async def job_of(parked: Parked) -> Job:
    """The one job that a pop got which waited."""
    (job,) = await jobs_of(parked)
    return job


async def told(bell: Bell, pool: Pool, shard: int = 0) -> bool:
    """Whether all that the shard said before has been heard: a message of our own came through."""
    bell.free(shard).clear()
    await pool.redis.read("SPUBLISH", pool.keys[shard].bell, "free")
    await until(bell.free(shard).is_set)
    return True
