"""A service with queue_server's port open, and clients of it on bare sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp

from jobqueue.app import Service
from jobqueue.dialect_settings import Dialects, QueueServer
from jobqueue.settings import Settings
from tests.kit.ports import free_port
from tests.kit.redis_server import RedisServer

WITHIN_S = 10


class Served:
    """A service and the port of queue_server."""

    def __init__(self, service: Service, port: int) -> None:
        self.service = service
        self.port = port

    @contextlib.asynccontextmanager
    async def tcp(self) -> AsyncIterator[Tcp]:
        """A connection."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            yield Tcp(reader, writer)
        finally:
            writer.close()

    @contextlib.asynccontextmanager
    async def udp(self) -> AsyncIterator[Udp]:
        """A socket for datagrams."""
        transport, client = await asyncio.get_running_loop().create_datagram_endpoint(
            Udp, remote_addr=("127.0.0.1", self.port)
        )
        try:
            yield client
        finally:
            transport.close()

    async def native(self, **command: Any) -> Any:
        """The answer to a native command."""
        async with aiohttp.ClientSession() as session:
            response = await session.post(self.service.url + "/command", json=command)
            return await response.json()

    async def metrics(self) -> str:
        """What a scrape gives."""
        async with aiohttp.ClientSession() as session, session.get(self.service.url + "/metrics") as response:
            return await response.text()

    async def is_parked(self, number: int) -> bool:
        """Whether this many pops wait."""
        return f"\njobqueue_parked_pops {number}.0\n" in await self.metrics()


class Tcp:
    """A connection of a client that reads once for each answer, as theirs do."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def read(self) -> bytes:
        """What the next read gives; nothing where the connection was closed."""
        async with asyncio.timeout(WITHIN_S):
            return await self.reader.read(1 << 20)

    async def exchange(self, request: bytes) -> bytes:
        self.writer.write(request)
        return await self.read()

    async def ask(self, **members: Any) -> Any:
        """The answer to a request, in as many reads as it takes."""
        self.writer.write(json.dumps(members).encode())
        answer = b""
        while True:
            answer += await self.read()
            with contextlib.suppress(ValueError):
                return json.loads(answer)


class Udp(asyncio.DatagramProtocol):
    """A socket of a client."""

    def __init__(self) -> None:
        self._received: asyncio.Queue[bytes] = asyncio.Queue()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: object) -> None:
        self._received.put_nowait(data)

    async def read(self) -> bytes:
        async with asyncio.timeout(WITHIN_S):
            return await self._received.get()

    async def exchange(self, request: bytes) -> bytes:
        self.transport.sendto(request)
        return await self.read()

    async def ask(self, **members: Any) -> Any:
        return json.loads(await self.exchange(json.dumps(members).encode()))


@contextlib.asynccontextmanager
async def serving(server: RedisServer, options: dict[str, Any] | None = None, **settings: Any) -> AsyncIterator[Served]:
    """A service whose dialect has these options."""
    port = free_port()
    dialects = Dialects(queue_server=QueueServer(port=port, **(options or {})))
    async with Service(Settings(port=0, redis=server.url, grace_s=2, protocols=dialects, **settings)) as service:
        yield Served(service, port)


def now() -> int:
    return int(time.time())
