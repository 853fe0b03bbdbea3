"""A connection of the load to a service: minimal HTTP, so that the load is cheap."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any
from urllib.parse import urlsplit

import msgspec

PATIENCE_S = 6.0
"""How long an answer may take, beyond the wait of a pop: longer than a service's own deadline for Redis (5 s)."""


class NotSent(Exception):
    """No service was there to receive it: nothing was done."""


class NotAnswered(Exception):
    """It was sent, and no complete answer arrived: it may have been done."""


class Wire:
    """One keep-alive connection to one of several services; after trouble it switches to the next."""

    def __init__(self, urls: list[str], first: int = 0) -> None:
        self._urls = urls
        self._turn = first
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    @property
    def url(self) -> str:
        """The service in use now."""
        return self._urls[self._turn % len(self._urls)]

    async def exchange(self, commands: list[dict[str, Any]], wait_s: float = 0) -> list[dict[str, Any]]:
        """The answers to one command, or to several as an array. Raises NotSent or NotAnswered."""
        body = msgspec.json.encode(commands[0] if len(commands) == 1 else commands)
        try:
            async with asyncio.timeout(PATIENCE_S):
                reader, writer = self._streams or await self._connect()
        except (OSError, TimeoutError):
            self.give_up()
            raise NotSent from None
        try:
            async with asyncio.timeout(PATIENCE_S + wait_s):
                head = b"POST /command HTTP/1.1\r\nHost: chaos\r\nContent-Length: %d\r\n\r\n"
                writer.write(head % len(body) + body)
                answer = await _answer(reader)
        except (OSError, TimeoutError, EOFError, ValueError, LookupError):
            self.give_up()
            raise NotAnswered from None
        except asyncio.CancelledError:
            self.give_up()
            raise
        return answer if isinstance(answer, list) else [answer] * len(commands)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        place = urlsplit(self.url)
        self._streams = await asyncio.open_connection(place.hostname, place.port)
        return self._streams

    def give_up(self) -> None:
        """Hang up, and use the next service from now on."""
        if self._streams:
            with contextlib.suppress(OSError):
                self._streams[1].close()
        self._streams = None
        self._turn += 1


async def _answer(reader: asyncio.StreamReader) -> Any:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0])
    return msgspec.json.decode(await reader.readexactly(length))
