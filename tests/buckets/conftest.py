"""What the tests of waiting pops share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from buckets.pool.pool import Pool
from buckets.waiting.waiting import Waiting
from tests.buckets.waiting.parked import hearing, waiting_on


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
