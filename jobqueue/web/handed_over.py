"""A connection that belongs to aiohttp: passes all bytes to aiohttp's handler, and keeps to the limits of connections.

The handler is aiohttp's own and writes to the transport itself. `HandedOver` takes its place as the transport's
protocol, because aiohttp cannot be asked how much it has received of a request. So the incoming bytes are counted here,
and `watched` reports when requests begin and end. Both use only public interfaces, so no version of aiohttp is
excluded.
"""

from __future__ import annotations

import asyncio
import contextlib
from contextvars import Context
from typing import cast

from aiohttp import StreamReader, web

from buckets.errors import NoRoom
from jobqueue.access.caller import CALLER
from jobqueue.web.answering import Handler, refusal
from jobqueue.web.fast_path import written
from jobqueue.web.peer import Awaited, Peer
from jobqueue.web.port import Port

_MOST_DISCARDED = 16 << 20  # bytes of a refused request: the largest size of a request by default
_MOST_UNCHARGED = 64 << 10  # a request up to this many bytes is never refused for lack of room


class HandedOver(Peer):
    """A connection that belongs to aiohttp."""

    __slots__ = ("_charged", "_content", "_discarded", "_handler", "_is_fed", "_request")

    def __init__(self, port: Port) -> None:
        super().__init__(port)
        self._handler = port.handler()
        self._request: web.BaseRequest | None = None  # the request that is being handled
        self._content: StreamReader | None = None  # the body of the last request that has begun
        self._is_fed = False  # whether bytes have come, but their request has not begun yet
        self._charged = 0  # bytes of an incomplete request
        self._discarded = 0  # bytes of a body that came after the answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        super().connection_made(transport)
        inherited = Context()  # for the handler's task, which must not log the id of the previous request
        inherited.run(CALLER.set, self)
        inherited.run(self._handler.connection_made, transport)

    def take_over(self, wire: asyncio.Transport, received: bytes, *, is_surplus: bool) -> None:
        """Go on with a connection. `received`: its next bytes."""
        wire.set_protocol(self)
        self.connection_made(wire)
        self.is_surplus = is_surplus
        self.data_received(received)

    def data_received(self, data: bytes) -> None:
        """Bytes from the client."""
        is_whole = self._is_whole()
        self._is_fed |= is_whole
        self._handler.data_received(data)
        if self._is_fed or self._request is not None:
            self._charge(len(data))
        elif not is_whole:
            self._discard(len(data))

    def _discard(self, size: int) -> None:
        """Account for bytes that aiohttp reads only to get to the end of a refused request. A client that is cut off
        may lose the answer, so a client that sends a request of a usual size is not cut off."""
        self._discarded += size
        if self._discarded > _MOST_DISCARDED:
            self._handler.force_close()

    def _is_whole(self) -> bool:
        """Whether the last request that has begun is complete."""
        return self._content is None or self._content.is_eof()

    def _charge(self, size: int) -> None:
        """Account for more bytes of an incomplete request; refuse it if all connections together have no room left."""
        self._charged += size
        has_room = self._port.limits.charge(size)
        if not has_room and self._charged > _MOST_UNCHARGED:
            self._refuse(NoRoom("this process is receiving as many large requests as it may"))

    def begin(self, request: web.BaseRequest) -> None:
        """aiohttp begins to handle a request."""
        self._request, self._content = request, request.content
        self._is_fed = False
        self._discarded = 0
        self._awaited = None
        if self._is_whole():
            self._charge(-self._charged)
        if self.is_surplus:
            self._handler.close()  # after the answer

    def finish(self) -> None:
        """The request is handled. If it was refused, its body was never read, and aiohttp's objects, which refer to
        each other, would keep the body until the garbage collector runs, which is rare."""
        self._request = None
        if self._content is not None:
            with contextlib.suppress(Exception):  # the body ended with an error: there is nothing to release
                self._content.read_nowait()
        self._charge(-self._charged)

    def _refuse(self, error: Exception) -> None:
        is_unanswered = self._request is None or self._request.writer.output_size == 0
        if is_unanswered and not self._wire.is_closing():
            self._wire.write(written(refusal(error), "", last=True))
        self._handler.force_close()

    def eof_received(self) -> None:
        """The client sends no more."""
        self._handler.eof_received()

    def pause_writing(self) -> None:
        """The client does not read."""
        self._handler.pause_writing()

    def resume_writing(self) -> None:
        """The client has read."""
        self._handler.resume_writing()

    def connection_lost(self, exc: BaseException | None) -> None:
        """The client is gone, or the connection was closed here."""
        super().connection_lost(exc)
        self._charge(-self._charged)
        self._handler.connection_lost(exc)
        self._port.leave(self)

    def end(self) -> None:
        """Accept no more requests: see `Ending`."""
        if self._request is None:
            self._handler.force_close()
        else:
            self._handler.close()  # after the answer

    def abort(self) -> None:
        """Close now: see `Ending`."""
        self._wire.abort()

    def _awaits(self) -> Awaited:
        is_whole = not self._is_fed if self._request is None else self._is_whole()
        return Awaited.NOTHING if is_whole else Awaited.REST  # aiohttp itself ends idle connections


def watched(handler: Handler) -> Handler:
    """A handler that notifies the connection when a request begins and ends."""

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        connection = cast(HandedOver, CALLER.get())
        connection.begin(request)
        try:
            return await handler(request)
        finally:
            connection.finish()

    return handle
