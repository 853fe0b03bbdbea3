"""A stage with a broker of each kind in turn."""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from jobqueue_client import AsyncClient

from tests.acceptance.service import ServiceProcess
from tests.jobqueue.sinks.brokers import BROKERS, Broker, Missing
from tests.jobqueue.sinks.brokers.stage import Stage
from tests.redis_server import RedisServer


def new_broker(kind: str) -> Broker:
    module, _, name = BROKERS[kind].partition(":")
    broker: Broker = getattr(importlib.import_module(module), name)()
    return broker


@pytest.fixture(params=BROKERS)
async def broker(request: pytest.FixtureRequest) -> AsyncIterator[Broker]:
    """A running one, with what the topic `jobs` goes to."""
    broker = new_broker(request.param)
    try:
        try:
            await broker.start()
        except Missing as error:
            pytest.skip(f"{error} is not installed; .ci/run installs it")
        await broker.prepare(["jobs"])
        yield broker
    finally:
        broker.remove()


@pytest.fixture
async def stage(broker: Broker, own_server: RedisServer, tmp_path: Path) -> AsyncIterator[Stage]:
    async with ServiceProcess("--redis", own_server.url) as service, AsyncClient(service.url) as client:
        stage = Stage(broker, service, client, tmp_path)
        yield stage
        await stage.end()
