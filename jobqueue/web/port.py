"""What the connections of a port share, and how they end together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Protocol

from aiohttp import web

from jobqueue.access.connections import ConnectionLimits
from jobqueue.protocols import Reply


class Cancellable(Protocol):
    """A request in flight."""

    def cancel(self) -> object:
        """Give it up: its client is gone."""


class Client(Protocol):
    """Where the answer to a request goes."""

    async def send(self, reply: Reply, request_id: str, *, has_jobs: bool) -> None:
        """Write the answer to the request, and its id. Raises ConnectionError when the client is gone. `has_jobs`: the
        answer hands out jobs, so make sure that the client has not hung up unnoticed."""


class Caller(Client, Protocol):
    """The client of a simple request: its answer may also be written without a task."""

    @property
    def address(self) -> str:
        """Its network address."""

    @property
    def is_connected(self) -> bool:
        """Whether it is still there, as far as is known."""

    def has_hung_up(self) -> bool:
        """Whether it is gone. Asks the socket, for what the event loop has not read yet; to be used before an answer
        that hands out jobs. A client that is gone is sent nothing more, and the request in flight is cancelled."""

    def answer(self, body: bytes, request_id: str) -> None:
        """Answer with 200 and this JSON. Never raises; does nothing when the client is gone."""

    def complete(self, work: Coroutine[Any, Any, None]) -> None:
        """Go on with a task, which answers by `send`; it is cancelled when the client is gone. It always begins, so
        what the work holds goes back by its own handlers."""


class Answerer(Protocol):
    """Answers the simple requests."""

    closing: bool
    """It takes no more of them; the answers to those in flight are the last of their connections."""
    most_bytes: int
    """A request with a longer body is not simple."""

    def begin(self, data: bytes, given_id: str, connection: Caller) -> Cancellable | None:
        """Begin to answer a request by its body and the id that its client gave; returns what to cancel when the client
        is gone. None: it is answered by a task, begun with `complete`."""


class Ending(Protocol):
    """A connection, as the port sees it when it closes."""

    def end(self) -> None:
        """Take no more requests: close now, or behind the answer to the one in flight."""

    def abort(self) -> None:
        """Close now, and cancel the request in flight."""


class Port:
    """What the connections of a port share.

    `handler` makes aiohttp's handler of a connection. `allows`: whether the client with an address may connect.
    `idle_s`: how long a connection is kept without a request.
    """

    def __init__(
        self,
        answerer: Answerer,
        limits: ConnectionLimits,
        handler: Callable[[], web.RequestHandler],
        allows: Callable[[object], bool] | None,
        idle_s: float,
    ) -> None:
        self.answerer = answerer
        self.limits = limits
        self.handler = handler
        self.allows = allows
        self.idle_s = idle_s
        self.loop = asyncio.get_running_loop()
        self._ending: set[Ending] = set()
        self._ended = asyncio.Event()

    async def end(self, connections: Iterable[Ending], grace_s: float) -> None:
        """Let the requests in flight end within `grace_s`, else cancel them; then their connections are closed."""
        self._ending = set(connections)
        for each in list(self._ending):
            each.end()
        if not await self._have_ended(grace_s):
            for each in list(self._ending):
                each.abort()
            await self._have_ended(grace_s)

    async def _have_ended(self, within_s: float) -> bool:
        try:
            async with asyncio.timeout(within_s):
                while self._ending:
                    self._ended.clear()
                    await self._ended.wait()
        except TimeoutError:
            return False
        return True

    def leave(self, connection: Ending) -> None:
        """A connection is closed, and none of its requests is in flight."""
        self._ending.discard(connection)
        self._ended.set()
