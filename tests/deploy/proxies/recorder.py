"""What a proxy sends to an instance, as bytes."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Self

from tests.kit.ports import free_port


class Recorder:
    """A relay in front of an instance that keeps what it is sent, by connection. `async with`."""

    def __init__(self, target: int) -> None:
        self.port = free_port()
        self.received: list[bytearray] = []
        self._target = target

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", self.port)
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._server.close()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received = bytearray()
        self.received.append(received)
        try:
            back, on = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_copy(reader, on, received), _copy(back, writer, bytearray()))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kept: bytearray) -> None:
    """Until a side closes or resets its connection; then the other one is closed."""
    try:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                kept += data
                writer.write(data)
    finally:
        writer.close()
