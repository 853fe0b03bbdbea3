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
LOST = "the subscription is lost: "

Orphan = Callable[[Any], None]
Sent = Callable[[], None]
"""Called when a command is on its connection: what is asked over it from now on comes behind that command."""


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
        self._leaving = False
        self._ended: Callable[[], None] | None = None
        self._watching = self._loop.call_later(timeout_s / 10, self._watch)

    def ask(self, command: Sequence[Value], orphan: Orphan | None = None) -> asyncio.Future[Any]:
        """Send a command with the next write. `orphan` gets the answer when its future was cancelled meanwhile."""
        future = self._loop.create_future()
        if self.lost:
            future.set_exception(Unanswered())
            future.exception()  # seen, should nobody wait for it
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

    def told_of_end(self, ended: Callable[[], None]) -> None:
        """Call this when the link is lost, or now if it is."""
        self._ended = ended
        if self.lost:
            ended()

    @property
    def silent_s(self) -> float:
        """For how long somebody has waited for an answer."""
        return self._loop.time() - self._waiting[0][0] if self._waiting else 0.0

    def leave(self) -> None:
        """Hang up when all that was asked is answered; who calls this asks no more."""
        self._leaving = True
        if not self._waiting:
            self.lose()

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
        if self._leaving and not self._waiting:
            self.lose()

    def _watch(self) -> None:
        """Redis that says nothing for the whole time-out is as good as gone, whatever the socket says."""
        if self.silent_s > self._timeout_s:
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
        if self._ended:
            self._ended()


class _Hearing:
    """One who hears a channel."""

    def __init__(self, channel: str, heard: Callable[[str], None]) -> None:
        loop = asyncio.get_running_loop()
        self.channel = channel.encode()
        self.heard = heard
        self.begun: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[None] = loop.create_future()

    def fail(self, error: Exception) -> None:
        for future in (self.begun, self.ended):
            if not future.done():
                future.set_exception(error)
                future.exception()  # seen: one of them may have nobody who waits


class Ear(Wire):
    """A connection that hears sharded channels (SSUBSCRIBE), each until it or the connection is lost.

    One that says nothing for `timeout_s` is asked whether it is there, and is lost when it does not answer.
    """

    def __init__(self, connection: Any, timeout_s: float) -> None:
        super().__init__(connection)
        self._timeout_s = timeout_s
        self._hearings: list[_Hearing] = []  # a few: one a shard
        self._last = self._loop.time()  # when Redis said something
        self._watching = self._loop.call_later(timeout_s, self._watch)

    async def hear(self, channel: str, heard: Callable[[str], None], connected: Callable[[], None]) -> None:
        """Hear a channel; `connected` is called when that begins. Raises Unavailable or TimeoutError at its end, or
        what `heard` raised. When nobody hears anything more, that is the end of the connection."""
        hearing = _Hearing(channel, heard)
        self._hearings.append(hearing)
        try:
            if self.lost:
                raise Unavailable("the subscription is lost")
            self._transport.write(_packed(("SSUBSCRIBE", channel)))
            async with asyncio.timeout(self._timeout_s):
                await hearing.begun
            connected()
            await hearing.ended
        finally:
            self._hearings.remove(hearing)
            if not self._hearings:
                self.lose()
            elif not hearing.ended.done() and not self._of(hearing.channel):
                self._transport.write(_packed(("SUNSUBSCRIBE", channel)))

    def _of(self, channel: bytes) -> list[_Hearing]:
        return [hearing for hearing in self._hearings if hearing.channel == channel]

    def _watch(self) -> None:
        quiet = self._loop.time() - self._last
        if quiet > 2 * self._timeout_s:
            self.lose()
            return
        if quiet > self._timeout_s / 2:
            self._transport.write(_packed(("PING",)))
        self._watching = self._loop.call_later(self._timeout_s, self._watch)

    def _take(self, reply: Any) -> None:
        self._last = self._loop.time()
        if isinstance(reply, ErrorReply):  # that of the first channel that waits: they are answered in order
            error = Unavailable(f"{LOST}{reply}")
            waiting = [hearing for hearing in self._hearings if not hearing.begun.done()]
            for hearing in waiting[:1]:
                hearing.fail(error)
        elif isinstance(reply, list) and reply[0] != b"pong":  # before the first subscription PONG is a word
            for hearing in self._of(reply[1]):
                self._act(hearing, reply[0], reply[2])

    def _act(self, hearing: _Hearing, kind: bytes, said: Any) -> None:
        if kind == b"smessage":
            try:
                hearing.heard(said.decode("utf-8", "replace"))
            except Exception as error:
                hearing.fail(error)
        elif kind == b"ssubscribe" and not hearing.begun.done():
            hearing.begun.set_result(None)
        elif kind == b"sunsubscribe":  # unasked: its slot went to another server
            hearing.fail(Unavailable(f"{LOST}the shard has another server now"))

    def _end(self) -> None:
        self._watching.cancel()
        for hearing in self._hearings:
            hearing.fail(Unavailable("the subscription is lost"))
