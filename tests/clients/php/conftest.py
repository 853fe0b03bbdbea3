"""A test service for the tests of the PHP client, empty before each test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.kit.service import Client, ServiceProcess


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def _service() -> AsyncIterator[ServiceProcess]:
    async with ServiceProcess("--test", workers=None) as service:
        yield service


@pytest_asyncio.fixture(loop_scope="module")
async def queue(_service: ServiceProcess) -> AsyncIterator[Client]:
    """A client of the empty service, whose clock stands still."""
    async with Client(_service.url) as client:
        await client.ask("reset")
        yield client
