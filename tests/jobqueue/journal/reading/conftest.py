"""A journal on an empty Redis whose events are on."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from sqlalchemy.pool import AsyncAdaptedQueuePool

from buckets.pool.pool import Pool
from jobqueue.journal import database
from jobqueue.journal.reading import shard, walk
from tests.jobqueue.journal.conftest import Database
from tests.jobqueue.journal.reading.drained import Journal, opened, switched_on
from tests.kit.databases import Server
from tests.kit.redis_server import RedisServer


@pytest.fixture(autouse=True)
def brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short waits, and a file that stays open between questions: to open it for each is most of the work of a test."""
    monkeypatch.setattr(database, "NullPool", AsyncAdaptedQueuePool)
    monkeypatch.setattr(shard, "_SHORTEST_S", 0.01)
    monkeypatch.setattr(shard, "_BLOCK_MS", 10)
    monkeypatch.setattr(shard, "_TIMELY_S", 0.0)
    monkeypatch.setattr(shard, "_LOOK_S", 0.02)
    monkeypatch.setattr(shard, "_LIVING_S", 0.3)
    monkeypatch.setattr(walk, "_LOOK_S", 0.02)
    monkeypatch.setattr(shard, "EVERY_S", 0.2)


@pytest.fixture(params=["postgresql", "mariadb"])
def served(request: pytest.FixtureRequest) -> Database:
    """An empty database on each kind of server in turn, which a test may kill and start."""
    return of_server(request.getfixturevalue(request.param))


def of_server(server: Server) -> Database:
    server.start()
    return Database(server.kind, server.new_database(), server)


@pytest.fixture
async def journal(live_pool: Pool, journal_url: str, redis_server: RedisServer) -> AsyncIterator[Journal]:
    """A journal in each kind of database."""
    await switched_on(live_pool)
    async with opened(live_pool, journal_url, redis_server.url) as journal:
        yield journal


@pytest.fixture
async def lite(live_pool: Pool, sqlite_url: str, redis_server: RedisServer) -> AsyncIterator[Journal]:
    """A journal in SQLite."""
    await switched_on(live_pool)
    async with opened(live_pool, sqlite_url, redis_server.url) as journal:
        yield journal
