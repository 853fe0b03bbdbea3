"""Waiting for a thing to be so, and turning the queue by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from buckets.pool import Pool

PATIENCE_S = 10.0


async def tick_all(pool: Pool) -> int:
    """Do what the timers would do now, until nothing moves; returns how many entries were dealt with."""
    moved = 0
    for shard in range(len(pool.keys)):
        for bucket in range(pool.buckets):
            wait = 0
            while wait == 0:
                some, wait = await pool.due(shard, bucket)
                moved += some
    return moved


async def until(reached: Callable[[], bool | Awaitable[bool]]) -> None:
    """Wait for a thing to be so, not for a time to pass."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            now = reached()
            if now if isinstance(now, bool) else await now:
                return
            await asyncio.sleep(0.002)
