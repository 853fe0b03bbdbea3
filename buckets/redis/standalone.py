"""One server that has all keys: a standalone Redis, or the master that Sentinels name."""

from __future__ import annotations

from typing import Any

from buckets.meter import Meter
from buckets.redis.server import Server
from buckets.redis.url import Url


class Standalone:
    """A Redis at one address. Behind a name or a proxy another server may replace it at any time: then the old one
    answers READONLY, and a new connection leads to the new one."""

    def __init__(self, url: Url, timeout_s: float, meter: Meter) -> None:
        self._server = Server("redis", self._reach, timeout_s, meter)
        self._url = url

    async def _reach(self) -> Any:
        return self._url.connection()

    def of(self, key: str | bytes | None) -> Server | None:
        """The server of a key if it is known; for None any server."""
        return self._server

    async def find(self, key: str | bytes | None, deadline: float) -> Server:
        """As `of`, but waits until it is known. Raises Unavailable at the deadline (loop time)."""
        return self._server

    async def all(self, deadline: float) -> list[Server]:
        """The servers that have keys. Raises Unavailable."""
        return [self._server]

    def refused(self, server: Server, error: str) -> Server | None:
        """Learn from an error reply of a server; returns the server to ask instead, if the reply names one."""
        if error.startswith("READONLY"):
            server.replace()
        return None

    @property
    def trouble(self) -> str:
        """Why the last attempt to connect failed; for an operator."""
        return self._server.trouble

    async def close(self) -> None:
        """Hang up."""
        await self._server.close()
