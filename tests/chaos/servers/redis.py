"""The Redis of a scenario: what a set of servers must offer to stand in one, and the standalone one.

A scenario names a factory: a function that takes an empty folder and gives servers. A set of several servers (with
Sentinels, a Cluster) is one more such factory; its own nemeses know its other methods.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from buckets import Redis
from tests.chaos.servers.proxy import Proxy, to
from tests.redis_cluster import ClusterSet
from tests.redis_network import Network
from tests.redis_sentinels import SentinelSet
from tests.redis_server import RedisServer
from tests.waiting import until


class Servers(Protocol):
    """Started by `async with`, and ended by it whatever state they are in."""

    @property
    def url(self) -> str:
        """Where the service finds them."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


Factory = Callable[[Path], Servers]


class Standalone:
    """One server. `forgets` and `forgets_s`: what a kill -9 of it may cost, as in history.Event."""

    def __init__(self, folder: Path, *options: str, forgets: tuple[str, ...] = (), forgets_s: float = 0.0) -> None:
        self.server = RedisServer(folder, "--enable-debug-command", "yes", *options)
        self.url = self.server.url
        self._folder = folder
        self.forgets = forgets
        self.forgets_s = forgets_s

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.kill()

    @property
    def file(self) -> Path:
        """The append-only file that it writes now (they are never so large here that it begins another by itself)."""
        (file,) = self._files()
        return file

    def _files(self) -> list[Path]:
        return list(self._folder.glob("appendonlydir/*.incr.aof"))

    async def write_anew(self) -> None:
        """Let it begin another, without the half of a script at the end of a torn one (redis_server/torn_aof.py)."""
        torn = self.file
        await self.read("BGREWRITEAOF")
        await until(lambda: len(self._files()) == 1 and self.file != torn)

    async def start(self) -> None:
        """Start it, again if it was killed, and wait until it has its data."""
        await asyncio.to_thread(self.server.start)

    async def kill(self) -> None:
        """kill -9."""
        await asyncio.to_thread(self.server.kill)

    async def read(self, *command: str) -> Any:
        """One command to it, on a connection of its own."""
        redis = Redis(self.url, timeout_s=20)
        try:
            return await redis.read(*command)
        finally:
            await redis.close()


class Networked:
    """One server, and a network between it and the service whose weather may change."""

    def __init__(self, folder: Path) -> None:
        self._server = Standalone(folder)
        self.proxy = Proxy(to(str(folder / "redis.sock")))

    @property
    def url(self) -> str:
        return self.proxy.url

    async def __aenter__(self) -> Self:
        await self._server.__aenter__()
        await self.proxy.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.proxy.__aexit__()
        await self._server.__aexit__(kind, error, trace)


def volatile(folder: Path) -> Standalone:
    """No file at all: for scenarios that do not kill it."""
    return Standalone(folder)


def fsync_always(folder: Path) -> Standalone:
    """What is acknowledged is on the disk."""
    return Standalone(folder, "--appendonly", "yes", "--appendfsync", "always")


def fsync_everysec(folder: Path) -> Standalone:
    """What is acknowledged is on the disk two seconds later at the latest."""
    options = ("--appendonly", "yes", "--appendfsync", "everysec")
    return Standalone(folder, *options, forgets=("local",), forgets_s=2.0)


def networked(folder: Path) -> Networked:
    """Behind a network that may be bad."""
    return Networked(folder)


def sentinels(folder: Path) -> SentinelSet:
    """A master, two replicas and three Sentinels; in a folder of their own."""
    return SentinelSet()


def cluster(folder: Path) -> ClusterSet:
    """Three masters and a replica of each; in a folder of their own."""
    return ClusterSet()


def networked_sentinels(folder: Path) -> SentinelSet:
    """As `sentinels`, with a network between all of them."""
    return SentinelSet(network=Network())


def networked_cluster(folder: Path) -> ClusterSet:
    """As `cluster`, with a network between all of them."""
    return ClusterSet(network=Network())
