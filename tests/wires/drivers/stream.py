"""A TCP connection that is read in lines and lengths; its end is a ConnectionError."""

from __future__ import annotations

import asyncio
import contextlib
import socket

PATIENCE_S = 20.0
_HOST = "127.0.0.1"


class Stream:
    """Connects when first used; after `close` the next use connects again."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._ends: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._ends is None:
            self._ends = await asyncio.open_connection(_HOST, self.port, limit=1 << 26)
            _, writer = self._ends
            writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._ends

    @property
    def is_open(self) -> bool:
        return self._ends is not None

    async def send(self, data: bytes) -> None:
        _, writer = await self.connect()
        writer.write(data)
        await writer.drain()

    async def line(self, end: bytes = b"\r\n") -> bytes:
        """The next line, without its end."""
        reader, _ = await self.connect()
        try:
            return (await reader.readuntil(end)).removesuffix(end)
        except asyncio.IncompleteReadError:
            raise ConnectionError("closed by the service") from None

    async def exactly(self, length: int) -> bytes:
        reader, _ = await self.connect()
        try:
            return await reader.readexactly(length)
        except asyncio.IncompleteReadError:
            raise ConnectionError("closed by the service") from None

    async def some(self) -> bytes:
        """What has come, at least one byte."""
        reader, _ = await self.connect()
        data = await reader.read(1 << 16)
        if not data:
            raise ConnectionError("closed by the service")
        return data

    async def close(self) -> None:
        if self._ends is not None:
            _, writer = self._ends
            self._ends = None
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
