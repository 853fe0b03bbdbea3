"""Slices in every scenario: jobs that are due in more than a second move into slices, as in a service those do that are
due in more than an hour. The timers of the instances have to bring them back in time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from buckets.errors import JobQueueError
from buckets.pool.pool import Pool
from buckets.redis.client import Redis

_FAR_MS = 1000
_EVERY_S = 0.1


@contextlib.asynccontextmanager
async def slicing(url: str) -> AsyncIterator[None]:
    """Move far jobs into slices all the time."""
    task = asyncio.create_task(_run(url))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _run(url: str) -> None:
    redis = Redis(url)
    try:
        while True:
            with contextlib.suppress(JobQueueError):  # Redis is away
                pool = await Pool.open(redis)
                await asyncio.gather(*(_slice(pool, shard) for shard in range(len(pool.keys))), return_exceptions=True)
            await asyncio.sleep(_EVERY_S)
    finally:
        await redis.close()


async def _slice(pool: Pool, shard: int) -> None:
    await pool.redis.read("HSET", pool.keys[shard].meta, "slices", _FAR_MS)
    for bucket in range(pool.buckets):
        await pool.slice(shard, bucket, 0, 100)
