"""Worlds for the tests of restore."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from sqlalchemy.pool import AsyncAdaptedQueuePool

from buckets.pool.pool import Pool
from jobqueue.journal import database
from jobqueue.journal.reading import shard
from tests.jobqueue.journal.restoring.lost import World, world_of
from tests.kit.redis_server import RedisServer


@pytest.fixture(autouse=True)
def brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers that wait for less: tests lose their Redis often. A file stays open between questions: to open it for
    each is most of the work of a test."""
    monkeypatch.setattr(database, "NullPool", AsyncAdaptedQueuePool)
    monkeypatch.setattr(shard, "_SHORTEST_S", 0.01)
    monkeypatch.setattr(shard, "_LIVING_S", 0.2)
    monkeypatch.setattr(shard, "_BLOCK_MS", 50)
    monkeypatch.setattr(shard, "_TIMELY_S", 0.0)


@pytest.fixture
async def world(live_pool: Pool, redis_server: RedisServer, sqlite_url: str) -> AsyncIterator[World]:
    """With a journal in SQLite, for what is the same with each database."""
    async with world_of(live_pool, redis_server.url, sqlite_url) as world:
        yield world


@pytest.fixture
async def each_world(live_pool: Pool, redis_server: RedisServer, journal_url: str) -> AsyncIterator[World]:
    """With a journal in a database of each kind in turn."""
    async with world_of(live_pool, redis_server.url, journal_url) as world:
        yield world
