"""One Redis server: a connection for commands and one for channels, each renewed automatically when it is lost.

`Standalone` is one server that has all keys: a standalone Redis, or the master that Sentinels name.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from redis.exceptions import RedisError

from buckets.errors import JobQueueError, Unavailable
from buckets.meter import Meter
from buckets.redis.link import LOST, Ear, Link, Wire, hang_up
from buckets.redis.outage import reason
from buckets.redis.url import Url
from buckets.scripts import SCRIPTS

log = logging.getLogger(__name__)

_LOADED = ("add", "finish", "pop")  # the scripts that every new connection loads
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.02, 0.5  # s between two attempts to connect
SILENT_S = 0.25  # a server that owes an answer for longer is away
_HEAR_S = 1.0  # time limit of connecting for channels
_SETTLED_S = 0.2  # the age from which a connection may be replaced

T = TypeVar("T")
W = TypeVar("W", bound=Wire)

Reach = Callable[[], Awaitable[Any]]
"""Makes a redis-py connection, not open yet, to the server's current address. Raises OSError."""


class Retired(JobQueueError):
    """The server no longer has any of our keys; callers that wait for it must find another."""


async def within(deadline: float, waited: asyncio.Future[T]) -> T:
    """Wait for a future until a deadline (loop time), without cancelling it. Raises Unavailable."""
    try:
        async with asyncio.timeout_at(deadline):
            return await asyncio.shield(waited)
    except TimeoutError:
        raise Unavailable() from None


class Server:
    """One server. `name` is for logs. A lost connection is renewed at once, with an unlimited number of attempts."""

    def __init__(self, name: str, reach: Reach, timeout_s: float, meter: Meter, loaded: bool = True) -> None:
        """`loaded`: whether new connections load the scripts."""
        self.name = name
        self._reach = reach
        self._timeout_s = timeout_s
        self._meter = meter
        self._loaded = _LOADED if loaded else ()
        self.link: Link | None = None
        """The connection for commands, which may be lost."""
        self._since = 0.0
        self._ear: Ear | None = None
        self._ear_lock = asyncio.Lock()
        self._coming: asyncio.Future[Link] | None = None
        self._connecting: asyncio.Task[None] | None = None
        self.retired = False
        self.trouble = ""
        """Why the last attempt to connect failed, for an operator."""
        self._refuses_until = 0.0

    @property
    def is_away(self) -> bool:
        """Whether the server cannot be asked now, does not answer, or refused everything a moment ago."""
        return self.is_mute or self.refuses

    @property
    def is_mute(self) -> bool:
        """Whether the server cannot be asked now, or does not answer."""
        return self.link is None or self.link.lost or self.link.silent_s > SILENT_S

    @property
    def refuses(self) -> bool:
        """Whether the server refused everything a moment ago."""
        return asyncio.get_running_loop().time() < self._refuses_until

    def refuses_all(self) -> None:
        """Note that the server answered that it refuses everything."""
        self._refuses_until = asyncio.get_running_loop().time() + SILENT_S

    def begin(self) -> asyncio.Future[Link]:
        """Connect, unless that is in progress; returns a future for the connection."""
        if self._coming is None or self._coming.done():
            self._coming = asyncio.get_running_loop().create_future()
            self._connecting = asyncio.create_task(self._connect(self._coming))
        return self._coming

    async def connected(self, deadline: float) -> Link:
        """The connection; waits for it up to the deadline (loop time). Raises Unavailable, Retired."""
        if self.retired:
            raise Retired
        if self.link and not self.link.lost:
            return self.link
        return await within(deadline, self.begin())

    async def _connect(self, coming: asyncio.Future[Link]) -> None:
        """Try to connect until an attempt succeeds."""
        pause = _SHORTEST_PAUSE
        while True:
            try:
                self.link = await self._linked()
            except (RedisError, OSError, Unavailable) as error:
                self.trouble = reason(error)
                if pause == _SHORTEST_PAUSE:
                    log.warning("redis.lost", extra={"server": self.name, "error": reason(error)})
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
                continue
            except BaseException as error:
                if not coming.done() and isinstance(error, Exception):
                    coming.set_exception(error)
                raise
            if pause > _SHORTEST_PAUSE:
                log.info("redis.found", extra={"server": self.name})
            self._since = asyncio.get_running_loop().time()
            coming.set_result(self.link)
            self.link.on_end(self._lost)
            return

    def _lost(self) -> None:
        if not self.retired and (self.link is None or self.link.lost):
            self.begin()

    async def _linked(self) -> Link:
        link = await self._open(lambda connection: Link(connection, self._timeout_s, self._meter))
        try:  # a script that Redis does not know would be sent again, after later commands
            await asyncio.gather(*(link.ask(("SCRIPT", "LOAD", SCRIPTS[name].text)) for name in self._loaded))
        except BaseException:
            link.lose()
            raise
        return link

    async def _open(self, wire: Callable[[Any], W]) -> W:
        """Open a new connection. Raises RedisError or OSError (which includes time-outs)."""
        connection = await self._reach()
        try:
            async with asyncio.timeout(self._timeout_s):  # the handshake too
                await connection.connect()
            return wire(connection)
        except BaseException:
            hang_up(connection)
            raise

    async def hear(self, channel: str, heard: Callable[[str], None], connected: Callable[[], None]) -> None:
        """As `Ear.hear`, over the connection that all channels of the server share. Raises Unavailable."""
        try:
            async with self._ear_lock:
                if self.retired:
                    raise Unavailable(f"{LOST}another server has the shard now")
                if self._ear is None or self._ear.lost:
                    async with asyncio.timeout(_HEAR_S):  # all shards of a server wait for this; it may be gone
                        self._ear = await self._open(lambda connection: Ear(connection, self._timeout_s))
                ear = self._ear
            await ear.hear(channel, heard, connected)
        except (RedisError, OSError) as error:
            raise Unavailable(f"{LOST}{reason(error)}") from None

    def replace(self) -> None:
        """Open another connection: the current one leads to a server that is no longer a master. Pending commands are
        still answered on the old connection."""
        link = self.link
        if link and not link.lost and asyncio.get_running_loop().time() - self._since > _SETTLED_S:
            self.link = None
            self._ear, ear = None, self._ear
            self.begin()
            link.leave()
            if ear:
                ear.lose()

    def leave_behind(self) -> None:
        """Hang up and open another connection: another server has taken over, or this one was lost silently."""
        if self._connecting and self._coming and not self._coming.done():  # connecting, perhaps to the old server
            self._connecting.cancel()
            self._connecting = asyncio.create_task(self._connect(self._coming))
        if self.link:
            self.link.lose()
        if self._ear:
            self._ear.lose()

    def retire(self) -> None:
        """Stop using the server. If it still answers, its connection closes once all pending commands are answered."""
        self.retired = True
        if self._connecting:
            self._connecting.cancel()
        if self._coming and not self._coming.done():
            self._coming.set_exception(Retired())
            self._coming.exception()  # marked as retrieved, in case nobody waits
        if self._ear:
            self._ear.lose()
        if self.link and self.is_mute:
            self.link.lose()
        elif self.link:
            self.link.leave()

    async def close(self) -> None:
        """Hang up for good; returns once the sockets are closed."""
        self.retire()
        if self._connecting:
            await asyncio.gather(self._connecting, return_exceptions=True)
        for wire in (self.link, self._ear):
            if wire:
                wire.lose()
                await wire.closed()


class Standalone:
    """A Redis at one address. Behind a name or a proxy, another server may take its place at any time: then the old
    server answers READONLY, and a new connection leads to the new server."""

    def __init__(self, url: Url, timeout_s: float, meter: Meter) -> None:
        self._server = Server("redis", self._reach, timeout_s, meter)
        self._url = url

    async def _reach(self) -> Any:
        return self._url.connection()

    def of(self, key: str | bytes | None) -> Server | None:
        """The only server."""
        return self._server

    async def find(self, key: str | bytes | None, deadline: float) -> Server:
        """The only server."""
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
        """Why the last attempt to connect failed, for an operator."""
        return self._server.trouble

    async def close(self) -> None:
        """Hang up."""
        await self._server.close()
