"""A service without tokens that has one of everything, for the tests of a file."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.acceptance.service import Client, ServiceProcess
from tests.jobqueue.console import contents
from tests.kit.redis_server import RedisServer


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def filled(redis_server: RedisServer, request: object) -> AsyncIterator[ServiceProcess]:
    """Tests that change what it has do so to topics of their own."""
    namespace = f"console-{id(request):x}"
    async with ServiceProcess("--redis", redis_server.url, "--namespace", namespace) as service:
        async with Client(service.url) as client:
            await contents.fill(client)
        await contents.fill_past(redis_server.url, namespace)
        yield service
