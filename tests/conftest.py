"""Fixtures that all tests share: a private Redis, a pool on it, and a clock under the test's control."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler.loadfile import LoadFileScheduling

from buckets.clock import HeldClock
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from tests.redis_server import RedisServer

# The same examples in every run, however slow the machine; a failure prints how to reproduce it.
settings.register_profile("jobqueue", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("jobqueue")


class _Scheduling(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """One file per process at a time; all of Spark's files go to two processes, as each starts and warms up a JVM."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        if not file.startswith("tests/spark/"):
            return file
        return "spark, a to i" if Path(file).name < "test_j" else "spark, j to z"


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> _Scheduling:
    return _Scheduling(config, log)


# These take minutes, or wait for failovers: run last, one of them would keep a single process busy at the end.
_FIRST = (
    *("tests/spark/", "brokers/test_suite.py", "test_cluster.py", "test_redis_sets.py", "test_sentinels.py"),
    *("tests/chaos/", "test_timers"),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow files first, Spark's before all others."""
    places = {part: place for place, part in enumerate(_FIRST)}
    items.sort(key=lambda item: min(place if part in item.nodeid else len(_FIRST) for part, place in places.items()))


@pytest.fixture(autouse=True)
def logs_as_they_were() -> Iterator[None]:
    """A command that ran in this process has set up the logs; the next test finds them as pytest has them."""
    root = logging.getLogger()
    level = root.level
    yield
    root.setLevel(level)
    root.handlers[:] = [handler for handler in root.handlers if type(handler) is not logging.StreamHandler]
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """The Redis that tests share; a test that kills or fills its Redis takes `own_server`."""
    # Not pytest's own folder: the path of a Unix socket has 107 characters at most.
    with tempfile.TemporaryDirectory(prefix="jq-") as folder, RedisServer(Path(folder)) as server:
        yield server


@pytest.fixture
def own_server() -> Iterator[RedisServer]:
    """A Redis that belongs to one test, which may do anything to it."""
    with tempfile.TemporaryDirectory(prefix="jq-") as folder, RedisServer(Path(folder)) as server:
        yield server


@pytest.fixture
async def redis(redis_server: RedisServer) -> AsyncIterator[Redis]:
    """A connection to an empty Redis."""
    connection = Redis(redis_server.url)
    await connection.read("FLUSHALL")
    await connection.read("CONFIG", "RESETSTAT")
    yield connection
    await connection.close()


@pytest.fixture
def clock() -> HeldClock:
    return HeldClock()


@pytest.fixture
async def pool(redis: Redis, clock: HeldClock) -> AsyncIterator[Pool]:
    """A pool of one shard on the clock that the test controls."""
    pool = await Pool.open(redis, clock=clock)
    yield pool
    await pool.close()


@pytest.fixture
async def live_pool(redis: Redis) -> AsyncIterator[Pool]:
    """A pool of one shard on Redis's own clock."""
    pool = await Pool.open(redis)
    yield pool
    await pool.close()
