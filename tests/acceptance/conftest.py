"""Fixtures of the acceptance tests: a client of a real service."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from buckets.redis.client import Redis
from tests.kit.redis_server import RedisServer
from tests.kit.service import Client, ServiceProcess


@pytest.fixture
async def client(redis_server: RedisServer, redis: Redis) -> AsyncIterator[Client]:
    """A client of a service on the shared Redis, which is empty."""
    async with ServiceProcess("--redis", redis_server.url) as service, Client(service.url) as client:
        yield client
