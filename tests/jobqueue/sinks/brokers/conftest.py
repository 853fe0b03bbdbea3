"""A stage with a broker of each kind in turn."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from jobqueue_client import AsyncClient

from tests.jobqueue.sinks.brokers.stage import Stage
from tests.kit.brokers import BROKERS, Broker, new_broker
from tests.kit.program import Missing
from tests.kit.redis_server import RedisServer
from tests.kit.service import ServiceProcess


class Running:
    """Brokers of each kind that run, empty, for one test at a time."""

    def __init__(self) -> None:
        self._kept: dict[str, Broker] = {}

    @asynccontextmanager
    async def one(self, kind: str) -> AsyncIterator[Broker]:
        is_new = kind not in self._kept
        broker = new_broker(kind) if is_new else self._kept.pop(kind)
        try:
            try:
                await broker.start()
            except Missing as error:
                pytest.skip(str(error))
            if not is_new:
                await broker.clear()
            yield broker
            if broker.is_kept:
                broker.thaw()
                self._kept[kind] = broker
        finally:
            if kind not in self._kept:
                broker.remove()

    def end(self) -> None:
        for broker in self._kept.values():
            broker.remove()


@pytest.fixture(scope="session")
def running() -> Iterator[Running]:
    running = Running()
    yield running
    running.end()


@pytest.fixture(params=BROKERS)
async def broker(request: pytest.FixtureRequest, running: Running) -> AsyncIterator[Broker]:
    """A running one, with what the topic `jobs` goes to."""
    async with running.one(request.param) as broker:
        await broker.prepare(["jobs"])
        yield broker


@asynccontextmanager
async def staged(broker: Broker, redis: RedisServer, folder: Path) -> AsyncIterator[Stage]:
    """A service whose jobs go to a broker."""
    async with ServiceProcess("--redis", redis.url) as service, AsyncClient(service.url) as client:
        stage = Stage(broker, service, client, folder)
        yield stage
        await stage.end()


@pytest.fixture
async def stage(broker: Broker, own_server: RedisServer, tmp_path: Path) -> AsyncIterator[Stage]:
    async with staged(broker, own_server, tmp_path) as stage:
        yield stage
