"""What the tests of the bell share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from buckets.bell import Bell
from buckets.pool import Pool
from tests.buckets.bells import hearing


@pytest.fixture
async def bell(pool: Pool) -> AsyncIterator[Bell]:
    """A bell that hears."""
    async with hearing(pool) as bell:
        yield bell


@pytest.fixture
async def deaf(pool: Pool) -> AsyncIterator[Bell]:
    """A bell that hears only what a test tells it: as if every message were lost."""
    bell = Bell(pool)
    yield bell
    bell.close()
