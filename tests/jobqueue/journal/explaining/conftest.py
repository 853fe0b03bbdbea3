"""A journal that has begun, of an empty Redis whose events are on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from buckets.pool.pool import Pool
from tests.jobqueue.journal.reading.conftest import brisk  # noqa: F401 - a fixture, for these tests too
from tests.jobqueue.journal.reading.drained import Journal, opened, switched_on
from tests.kit.redis_server import RedisServer


@asynccontextmanager
async def _begun(pool: Pool, url: str, server: RedisServer) -> AsyncIterator[Journal]:
    await switched_on(pool)
    async with opened(pool, url, server.url) as journal:
        await journal.drain()
        yield journal


@pytest.fixture
async def journal(live_pool: Pool, journal_url: str, redis_server: RedisServer) -> AsyncIterator[Journal]:
    """A journal in each kind of database."""
    async with _begun(live_pool, journal_url, redis_server) as journal:
        yield journal


@pytest.fixture
async def lite(live_pool: Pool, sqlite_url: str, redis_server: RedisServer) -> AsyncIterator[Journal]:
    """A journal in SQLite."""
    async with _begun(live_pool, sqlite_url, redis_server) as journal:
        yield journal
