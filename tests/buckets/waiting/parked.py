"""Waiting pops: parked on a namespace whose subscriptions stand, or that hears only what a test passes to it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

from buckets.job import Job
from buckets.pool.pool import Pool
from buckets.pool.pop_search import Popped
from buckets.redis.client import Redis
from buckets.topics.topics import Topics
from buckets.waiting.notifier import Notifier
from buckets.waiting.waiting import Waiting
from tests.buckets.redis.links import link_of
from tests.kit.waiting import PATIENCE_S, until

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
    waiting: Waiting,
    topics: Sequence[str] = ("t",),
    count: int = 1,
    wait_s: float = LONG_S,
    worker: str = "",
    owner: str = "",
) -> Parked:
    """A waiting pop, which has looked twice and found nothing."""
    before = waiting.parked
    task = asyncio.create_task(waiting.pop(topics, count, wait_s, worker=worker, owner=owner))
    await until(lambda: waiting.parked == before + 1)
    await Topics(waiting._pool).stats()  # answered after its second look
    return task


async def asked(redis: Redis, commands: int = 1) -> None:
    """Wait until this many commands have been sent to a server that does not answer."""
    link = await link_of(redis)
    await until(lambda: len(link._waiting) == commands)


async def jobs_of(parked: Parked) -> list[Job]:
    """The jobs that a waiting pop gets."""
    async with asyncio.timeout(PATIENCE_S):
        return (await parked).jobs


async def job_of(parked: Parked) -> Job:
    """The only job that a waiting pop gets."""
    (job,) = await jobs_of(parked)
    return job


async def caught_up(waiting: Waiting, pool: Pool, shard: int = 0) -> bool:
    """Whether all earlier messages of the shard have been heard: one of our own has arrived."""
    waiting.notifier.free(shard).clear()
    await pool.redis.read("SPUBLISH", pool.keys[shard].bell, "free")
    await until(waiting.notifier.free(shard).is_set)
    return True
