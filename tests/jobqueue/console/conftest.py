"""What the tests of a file share: a service without tokens that has one of everything, and a browser."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from tests.jobqueue.access.chromium import CHROMIUM
from tests.jobqueue.console import contents
from tests.jobqueue.console.consoles import Room, chromium, console
from tests.kit.redis_server import RedisServer
from tests.kit.service import Client, ServiceProcess


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def filled(redis_server: RedisServer, request: object) -> AsyncIterator[ServiceProcess]:
    """Tests that change what it has do so to topics of their own."""
    namespace = f"console-{id(request):x}"
    async with ServiceProcess("--redis", redis_server.url, "--namespace", namespace) as service:
        async with Client(service.url) as client:
            await contents.fill(client)
        await contents.fill_past(redis_server.url, namespace)
        yield service


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("chromium is missing (Debian: apt-get install chromium)")
    async with chromium() as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def room(filled: ServiceProcess, browser: Browser) -> AsyncIterator[Room]:
    async with console(filled.url) as made, Client(filled.url) as client:
        yield Room(made, client, browser)
