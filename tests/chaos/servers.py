"""The Redis of a scenario: what a set of servers must offer, and the standalone server.

A scenario names a factory: a function that takes an empty folder and returns servers. A set of several servers (with
Sentinels, or a Cluster) is just another factory; its own nemeses know its additional methods.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from buckets import Redis
from tests.kit.proxy import Proxy, to
from tests.kit.redis_cluster import ClusterSet
from tests.kit.redis_network import Network
from tests.kit.redis_sentinels import SentinelSet
from tests.kit.redis_server import RedisServer
from tests.kit.waiting import until


class Servers(Protocol):
    """Use with `async with`, which starts them, and ends them whatever state they are in."""

    @property
    def url(self) -> str:
        """The URL for the service."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


UNSENT_S = 1.0
"""What a master acknowledged within this time before it died may not have reached a replica."""
Factory = Callable[[Path], Servers]


class Standalone:
    """One server. `forgets` and `forgets_s`: what SIGKILL may cost, as in history.Event."""

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
        """The append-only file in use (these files never get large enough for Redis to start another by itself)."""
        (file,) = self._files()
        return file

    def _files(self) -> list[Path]:
        return list(self._folder.glob("appendonlydir/*.incr.aof"))

    async def write_anew(self) -> None:
        """Start a new file, without the half-written script at the end of a torn one."""
        torn = self.file
        await self.read("BGREWRITEAOF")
        await until(lambda: len(self._files()) == 1 and self.file != torn)

    async def start(self) -> None:
        """Start or restart it, and wait until it has loaded its data."""
        await asyncio.to_thread(self.server.start)

    async def kill(self) -> None:
        """Send SIGKILL."""
        await asyncio.to_thread(self.server.kill)

    async def read(self, *command: str) -> Any:
        """Send it one command, over a connection of its own."""
        redis = Redis(self.url, timeout_s=20)
        try:
            return await redis.read(*command)
        finally:
            await redis.close()


class Networked:
    """One server, and a network of changeable weather between it and the service."""

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
    """No persistence, for scenarios that do not kill it."""
    return Standalone(folder)


def fsync_always(folder: Path) -> Standalone:
    """Everything acknowledged is on disk."""
    return Standalone(folder, "--appendonly", "yes", "--appendfsync", "always")


def fsync_everysec(folder: Path) -> Standalone:
    """Everything acknowledged is on disk two seconds later at the latest."""
    options = ("--appendonly", "yes", "--appendfsync", "everysec")
    return Standalone(folder, *options, forgets=("local",), forgets_s=2.0)


def networked(folder: Path) -> Networked:
    """A server behind a network that may be bad."""
    return Networked(folder)


def sentinels(folder: Path) -> SentinelSet:
    """A master, two replicas and three Sentinels, in a folder of their own."""
    return SentinelSet()


def patient_sentinels(folder: Path) -> SentinelSet:
    """The same, for long runs in which no master dies: on a busy machine one can be silent for a second, and Sentinels
    would fail over by themselves, which no history tells."""
    return SentinelSet(down_after_ms=10_000)


def cluster(folder: Path) -> ClusterSet:
    """Three masters with a replica each, in a folder of their own."""
    return ClusterSet()


def networked_sentinels(folder: Path) -> SentinelSet:
    """Like `sentinels`, with a network between all of them."""
    return SentinelSet(network=Network())


def networked_cluster(folder: Path) -> ClusterSet:
    """Like `cluster`, with a network between all of them."""
    return ClusterSet(network=Network())
