"""Waiting for a condition, and running the timers by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from buckets.pool.pool import Pool

PATIENCE_S = 60.0  # far more than anything waited for takes, also where many tests share two cores

_LONGEST_S = 0.02


async def tick_all(pool: Pool) -> int:
    """Do what the timers would do now, until nothing is due; returns how many entries were handled."""
    moved = 0
    for shard in range(len(pool.keys)):
        for bucket in range(pool.buckets):
            wait = 0
            while wait == 0:
                some, wait, _ = await pool.due(shard, bucket)
                moved += some
    return moved


async def until(
    reached: Callable[[], bool | Awaitable[bool]], within_s: float = PATIENCE_S, every_s: float = 0.002
) -> None:
    """Wait for a condition, never for a fixed time. `every_s`: the first pause between two looks; they grow to 20 ms,
    as a look may take more work than what is waited for. Raises TimeoutError after `within_s` seconds."""
    async with asyncio.timeout(within_s):
        while True:
            now = reached()
            if now if isinstance(now, bool) else await now:
                return
            await asyncio.sleep(every_s)
            every_s = max(every_s, min(1.5 * every_s, _LONGEST_S))
