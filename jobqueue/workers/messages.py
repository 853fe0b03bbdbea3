"""What a supervisor says to its workers: how to begin, and later other settings.

It goes through a pipe, a worker's standard input, as JSON behind its length (4 bytes). So a Redis URL with its password
stands in no command line, and the end of the pipe tells the worker that its supervisor is gone, however it ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
from msgspec import Struct

from jobqueue.settings import Settings

_HEAD = 4


class Beginning(Struct, frozen=True):
    """The first order."""

    settings: Settings
    """With the URL of the Redis and the number of the port, whatever the operator wrote."""
    scratch: str
    """The folder of shared metrics, where it is to go together with the supervisor; else empty."""


def order(content: Beginning | Settings) -> bytes:
    """The bytes of an order."""
    data = msgspec.json.encode(content)
    return len(data).to_bytes(_HEAD, "big") + data


class Orders(asyncio.Protocol):
    """A worker's end of the pipe. `orphaned` is called at its end."""

    def __init__(self, orphaned: Callable[[], None]) -> None:
        self._orphaned = orphaned
        self._bytes = bytearray()
        self._orders: asyncio.Queue[bytes] = asyncio.Queue()

    def data_received(self, data: bytes) -> None:
        self._bytes += data
        while len(self._bytes) >= (end := _HEAD + int.from_bytes(self._bytes[:_HEAD], "big")):
            self._orders.put_nowait(bytes(self._bytes[_HEAD:end]))
            del self._bytes[:end]

    def connection_lost(self, error: Exception | None) -> None:
        self._orphaned()

    async def beginning(self) -> Beginning:
        """Wait for the first order."""
        return msgspec.json.decode(await self._orders.get(), type=Beginning)

    async def settings(self) -> Settings:
        """Wait for one that follows."""
        return msgspec.json.decode(await self._orders.get(), type=Settings)
