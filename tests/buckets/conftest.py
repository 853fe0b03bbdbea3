"""What the tests of the engine share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from buckets.clock import HeldClock
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from buckets.waiting.waiting import Waiting
from tests.buckets.waiting.parked import hearing, waiting_on

NewPool = Callable[[], Awaitable[Pool]]


@pytest.fixture
async def waiting(pool: Pool) -> AsyncIterator[Waiting]:
    """Waiting pops of a process that hears all shards."""
    async with hearing(pool) as waiting:
        yield waiting


@pytest.fixture
async def deaf(pool: Pool) -> AsyncIterator[Waiting]:
    """Waiting pops of a process that hears only what a test passes to it, as if every message were lost."""
    waiting = waiting_on(pool)
    yield waiting
    waiting.close()


@pytest.fixture
async def new_pool(redis: Redis, clock: HeldClock) -> AsyncIterator[NewPool]:
    """Empties Redis and opens a pool: for a test of many cases that each begin with nothing."""
    async with AsyncExitStack() as opened:

        async def new() -> Pool:
            await opened.aclose()
            await redis.read("FLUSHALL")
            pool = await Pool.open(redis, clock=clock)
            opened.push_async_callback(pool.close)
            return pool

        yield new
