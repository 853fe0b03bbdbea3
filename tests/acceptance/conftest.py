"""Fixtures of the acceptance tests: a client of a real service."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from buckets.redis.client import Redis
from tests.kit.redis_server import RedisServer
from tests.kit.service import Client, ServiceProcess

# The service founded the namespace, and its timers hold the locks; all else is from tests.
_WIPE = """
local kept = {meta = true, cards = true, roll = true}
for _, key in ipairs(redis.call("KEYS", "*")) do
    local name = string.match(key, "^{jq:0}:(.*)$")
    if not kept[name] and not string.match(name or "", "^lock:") then redis.call("DEL", key) end
end
"""


async def wipe(redis_url: str) -> None:
    """Leave a service that runs on a Redis without jobs, topics and figures."""
    redis = Redis(redis_url)
    await redis.read("EVAL", _WIPE, 0)
    await redis.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_service() -> AsyncIterator[tuple[ServiceProcess, RedisServer]]:
    """The service that the tests of a file share, on a Redis of its own: others empty the tests' Redis."""
    with tempfile.TemporaryDirectory(prefix="jq-") as folder, RedisServer(Path(folder)) as server:
        async with ServiceProcess("--redis", server.url) as service:
            yield service, server


@pytest.fixture
async def client(shared_service: tuple[ServiceProcess, RedisServer]) -> AsyncIterator[Client]:
    """A client of the service that the tests of a file share. Its namespace is empty."""
    service, server = shared_service
    await wipe(server.url)
    async with Client(service.url) as client:
        yield client
