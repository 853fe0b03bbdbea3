"""Two services that differ in one thing: one has the fast path, the other passes all requests to aiohttp."""

from __future__ import annotations

import asyncio
import re
import socket
import struct
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from jobqueue.app import Service
from jobqueue.settings import Settings
from jobqueue.web import ports
from jobqueue.web.handed_over import HandedOver

MOST_BYTES = 300_000
_TURNS = 30  # of the loop; an answer that needs no Redis takes about ten


@asynccontextmanager
async def both(url: str, **more: Any) -> AsyncIterator[tuple[int, int]]:
    """The ports of the two, that with the fast path first. `more`: settings."""
    async with started(url, "fast", **more) as fast:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ports, "Connection", HandedOver)
            other = started(url, "complete", **more)
            port = await other.__aenter__()
        try:
            yield fast, port
        finally:
            await other.__aexit__(None, None, None)


@asynccontextmanager
async def started(url: str, namespace: str, **more: Any) -> AsyncIterator[int]:
    """The port of a service in this loop."""
    settings = Settings(
        port=0, redis=url, namespace=namespace, max_request_bytes=MOST_BYTES, grace_s=1, allowed_hosts=("t",), **more
    )
    async with Service(settings) as service:
        yield int(service.url.rpartition(":")[2])


class Line:
    """A client's end of a connection: a bare socket, so that each piece is one packet and one read."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setblocking(False)
        self.port: int = self._socket.getsockname()[1]
        self.received = b""
        self.closed = False

    async def send(self, pieces: Iterable[bytes]) -> None:
        """Send piece after piece, each after the service is done with the one before, until it hangs up."""
        for piece in pieces:
            if not self.closed:
                await self.write(piece)
                await self.quiet()

    async def write(self, data: bytes) -> None:
        """Send bytes without reading."""
        await asyncio.get_running_loop().sock_sendall(self._socket, data)

    async def quiet(self) -> None:
        """Turn the loop, which the service shares, until nothing more comes."""
        known = -1
        while known < len(self.received) and not self.closed:
            known = len(self.received)
            for _ in range(_TURNS):
                await asyncio.sleep(0)
            self.look()

    def look(self) -> None:
        """Read what has come."""
        try:
            while not self.closed:
                some = self._socket.recv(1 << 20)
                self.received += some
                self.closed = not some
        except BlockingIOError:
            pass
        except ConnectionResetError:
            self.closed = True

    async def answers(self, number: int) -> bytes:
        """What has come, as soon as it holds that many answers."""
        async with asyncio.timeout(10):
            while self.received.count(b"HTTP/1.1 ") < number and not self.closed:
                await asyncio.sleep(0.001)
                self.look()
        return self.received

    async def comes(self, size: int) -> bytes:
        """What has come, as soon as it is that many bytes."""
        async with asyncio.timeout(20):
            while len(self.received) < size:
                await asyncio.sleep(0)
                self.look()
        return self.received

    def end(self) -> None:
        """Close the sending side: nothing follows."""
        self._socket.shutdown(socket.SHUT_WR)

    def close(self, *, reset: bool = False) -> None:
        """Hang up; `reset`: with an RST."""
        if reset:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()


def without_chance(received: bytes) -> bytes:
    """What a service sent, without the time and the ids that it made."""
    received = re.sub(rb"(?m)^Date: .{29}\r$", b"Date: now\r", received)
    return re.sub(rb"(?m)^X-Request-Id: [0-9a-f]{8}-[0-9a-f]+\r$", b"X-Request-Id: made\r", received)


async def fate(port: int, pieces: Iterable[bytes]) -> tuple[bytes, bool, bytes]:
    """What comes back for some bytes; whether the service then hung up; and what came after the client had ended."""
    line = Line(port)
    try:
        await line.send(pieces)
        said, closed = line.received, line.closed
        if not closed:
            line.end()
            await line.quiet()
        return without_chance(said), closed, without_chance(line.received[len(said) :])
    finally:
        line.close()
