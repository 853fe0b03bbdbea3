"""One connection to Redis, on hiredis: what is asked in one turn of the event loop leaves in one write, and the
answers come back in order.

redis-py opens the connection (addresses, TLS, AUTH, SELECT); then a protocol of ours takes its transport over. Its
own client asks once a round trip, and costs several times the CPU (docs/decisions.md).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import hiredis

from buckets.errors import Unanswered, Unavailable
from buckets.meter import Meter
from buckets.scripts import Value

_MOST_UNSENT = 1 << 20  # bytes that Redis has not taken yet; then those who ask wait
_NOTHING = object()

Orphan = Callable[[Any], None]


class ErrorReply(Exception):
    """An error that Redis answered, in its words. It stands where the answer would, also inside of a list."""


def _packed(command: Sequence[Value]) -> bytes:
    packed: bytes = hiredis.pack_command(tuple(command))  # type: ignore[arg-type]  # its types take one value only
    return packed


def hang_up(connection: Any) -> None:
    """Close a connection of redis-py, without waiting for what has not left yet; `disconnect` would."""
    with contextlib.suppress(Exception):
        if connection._writer:
            connection._writer.transport.abort()
        connection._close()


class Wire(asyncio.Protocol):
    """Bytes to replies, on the transport of a connection of redis-py (untyped there)."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._replies = hiredis.Reader(replyError=ErrorReply, notEnoughData=_NOTHING)
        self._loop = asyncio.get_running_loop()
        self.lost = False
        # There is no public way to it. The handshake is over, and what it read has been used up.
        self._transport: asyncio.Transport = connection._writer.transport
        self._transport.set_protocol(self)
        self._transport.set_write_buffer_limits(_MOST_UNSENT)

    def data_received(self, data: bytes) -> None:
        try:
            self._replies.feed(data)
            while (reply := self._replies.gets()) is not _NOTHING:
                self._take(reply)
        except hiredis.ProtocolError:  # what speaks there is no Redis
            self.lose()

    def _take(self, reply: Any) -> None:
        raise NotImplementedError

    def connection_lost(self, exc: Exception | None) -> None:
        self.lose()

    def lose(self) -> None:
        """Hang up, without waiting for what has not left yet."""
        if self.lost:
            return
        self.lost = True
        hang_up(self._connection)
        self._end()

    def _end(self) -> None:
        """The connection is gone."""


class Link(Wire):
    """Commands and their answers. `ask` returns a future; a lost link fails all of them with Unanswered."""

    def __init__(self, connection: Any, timeout_s: float, meter: Meter) -> None:
        super().__init__(connection)
        self._timeout_s = timeout_s
        self._meter = meter
        self._out: list[bytes] = []
        self._size = 0  # bytes of it
        self._waiting: deque[tuple[float, asyncio.Future[Any], Orphan | None]] = deque()
        self._room: asyncio.Future[None] | None = None  # while Redis takes nothing in
        self._watching = self._loop.call_later(timeout_s / 10, self._watch)

    def ask(self, command: Sequence[Value], orphan: Orphan | None = None) -> asyncio.Future[Any]:
        """Send a command with the next write. `orphan` gets the answer when its future was cancelled meanwhile."""
        future = self._loop.create_future()
        if self.lost:
            future.set_exception(Unanswered())
            return future
        if not self._out:
            self._loop.call_soon(self._write)
        packed = _packed(command)
        self._out.append(packed)
        self._size += len(packed)
        self._waiting.append((self._loop.time(), future, orphan))
        if self._size > _MOST_UNSENT:
            self._write()  # the transport tells whether there is room for more
        return future

    @property
    def room(self) -> asyncio.Future[None] | None:
        """Done when Redis takes commands in again; None while it does. Who asks without waiting for it piles them up
        in memory."""
        return self._room

    def _write(self) -> None:
        out, self._out, self._size = self._out, [], 0
        if out and not self.lost:
            self._meter.wrote(len(out))
            self._transport.write(b"".join(out))

    def pause_writing(self) -> None:
        self._room = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._room:
            self._room.set_result(None)
            self._room = None

    def _take(self, reply: Any) -> None:
        if not self._waiting:  # Redis says something unasked before it hangs up, "max number of clients" say
            self.lose()
            return
        _, future, orphan = self._waiting.popleft()
        if not future.done():
            future.set_result(reply)
        elif orphan:
            self._loop.call_soon(orphan, reply)  # what fails there does not end the connection

    def _watch(self) -> None:
        """Redis that says nothing for the whole time-out is as good as gone, whatever the socket says."""
        if self._waiting and self._loop.time() - self._waiting[0][0] > self._timeout_s:
            self.lose()
            return
        self._watching = self._loop.call_later(self._timeout_s / 10, self._watch)

    def _end(self) -> None:
        self._watching.cancel()
        self.resume_writing()
        for _, future, _ in self._waiting:
            if not future.done():
                future.set_exception(Unanswered())
                future.exception()  # seen, should nobody wait for it any more
        self._waiting.clear()


class Ear(Wire):
    """A subscription: hears channels until the connection is lost."""

    def __init__(self, connection: Any, heard: Callable[[str, str], None]) -> None:
        super().__init__(connection)
        self._heard = heard
        self._subscribed = 0
        self._begun: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._last = self._loop.time()  # when Redis said something

    async def subscribe(self, channels: Sequence[str], timeout_s: float) -> None:
        """Raises Unavailable or TimeoutError when Redis does not let us hear them."""
        self._subscribed = -len(channels)
        self._transport.write(_packed(("SUBSCRIBE", *channels)))
        async with asyncio.timeout(timeout_s):
            await self._begun

    async def ended(self, timeout_s: float) -> None:
        """Wait until Redis hangs up, or does not answer a ping within `timeout_s`; then raises Unavailable, or what
        `heard` raised."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await asyncio.shield(self._ended)
            quiet = self._loop.time() - self._last
            if quiet > 2 * timeout_s:
                raise Unavailable("the subscription is silent")
            if quiet > timeout_s / 2:
                self._transport.write(_packed(("PING",)))

    def _take(self, reply: Any) -> None:
        self._last = self._loop.time()
        if isinstance(reply, ErrorReply):
            self._fail(Unavailable(f"the subscription is lost: {reply}"))
        elif reply[0] == b"subscribe":
            self._subscribed += 1
            if not self._subscribed and not self._begun.done():
                self._begun.set_result(None)
        elif reply[0] == b"message":
            try:
                self._heard(reply[1].decode(), reply[2].decode("utf-8", "replace"))
            except Exception as error:
                self._fail(error)

    def _fail(self, error: Exception) -> None:
        for future in (self._begun, self._ended):
            if not future.done():
                future.set_exception(error)
                future.exception()  # seen: one of them may have nobody who waits
        self.lose()

    def _end(self) -> None:
        self._fail(Unavailable("the subscription is lost"))
