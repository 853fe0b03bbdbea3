"""What the connections of a port share, and how they end together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from aiohttp import web

from jobqueue.access.caller import Caller, Cancellable
from jobqueue.access.connections import ConnectionLimits
from jobqueue.access.entry import Visitor
from jobqueue.access.grants import Grant
from jobqueue.access.loopback import are_loopback
from jobqueue.access.tls import Tls
from jobqueue.protocols import Reply
from jobqueue.web.fast_path import Head


class Client(Protocol):
    """Where the answer to a request goes."""

    async def send(self, reply: Reply, request_id: str, *, has_jobs: bool) -> None:
        """Write the answer to the request, and its id. Raises ConnectionError when the client is gone. `has_jobs`: the
        answer hands out jobs, so make sure that the client has not hung up unnoticed."""


class SimpleClient(Client, Caller, Visitor, Protocol):
    """The client of a simple request."""

    grant: Grant
    """What the request in flight may do; set when it is let in."""


class Answerer(Protocol):
    """Answers the simple requests."""

    closing: bool
    """It takes no more of them; the answers to those in flight are the last of their connections."""
    most_bytes: int
    """A request with a longer body is not simple."""

    def begin(self, data: bytes, head: Head, connection: SimpleClient) -> Cancellable | None:
        """Begin to answer a request by its body and its head; it is never answered within this call. Returns what to
        cancel when the client is gone. None: it is answered by a task, begun with `complete`."""


class Ending(Protocol):
    """A connection, as the port sees it when it closes."""

    def end(self) -> None:
        """Take no more requests: close now, or behind the answer to the one in flight."""

    def abort(self) -> None:
        """Close now, and cancel the request in flight."""


class Port:
    """What the connections of a port share.

    `handler` makes aiohttp's handler of a connection. `allows`: whether the client with an address may connect.
    `idle_s`: how long a connection is kept without a request. `tls`: what its connections begin with.
    """

    def __init__(
        self,
        answerer: Answerer,
        limits: ConnectionLimits,
        handler: Callable[[], web.RequestHandler],
        allows: Callable[[object], bool] | None,
        idle_s: float,
        tls: Tls | None = None,
    ) -> None:
        self.answerer = answerer
        self.limits = limits
        self.handler = handler
        self.allows = allows
        self.idle_s = idle_s
        self.tls = tls
        self.loop = asyncio.get_running_loop()
        self.addresses: list[tuple[Any, ...]] = []
        """Those that it listens on; none: it is a Unix socket."""
        self._endings: list[set[Ending]] = []
        self._ended = asyncio.Event()

    @property
    def is_on_loopback(self) -> bool:
        """Whether it listens on addresses that only this machine reaches, and on nothing else."""
        return bool(self.addresses) and are_loopback(address[0] for address in self.addresses)

    async def end(self, connections: Iterable[Ending], grace_s: float) -> None:
        """Let the requests in flight end within `grace_s`, else cancel them; then their connections are closed."""
        ending = set(connections)
        self._endings.append(ending)
        for each in list(ending):
            each.end()
        if not await self._have_ended(ending, grace_s):
            for each in list(ending):
                each.abort()
            await self._have_ended(ending, grace_s)
        self._endings.remove(ending)

    async def _have_ended(self, ending: set[Ending], within_s: float) -> bool:
        try:
            async with asyncio.timeout(within_s):
                while ending:
                    self._ended.clear()
                    await self._ended.wait()
        except TimeoutError:
            return False
        return True

    def leave(self, connection: Ending) -> None:
        """A connection is closed, and none of its requests is in flight."""
        for ending in self._endings:
            ending.discard(connection)
        self._ended.set()
