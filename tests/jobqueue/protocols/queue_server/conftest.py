"""Clients of the service that a test module serves."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.jobqueue.protocols.queue_server.clients import Served, Tcp, Udp


@pytest.fixture
async def tcp(served: Served) -> AsyncIterator[Tcp]:
    async with served.tcp() as client:
        yield client


@pytest.fixture
async def udp(served: Served) -> AsyncIterator[Udp]:
    async with served.udp() as client:
        yield client
