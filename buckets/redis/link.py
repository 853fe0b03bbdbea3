"""One connection to Redis, on hiredis: the commands of one turn of the event loop are sent in one write, and the
replies arrive in order.

redis-py opens the connection (addresses, TLS, AUTH, SELECT); then the protocols here take over its transport. The
client of redis-py sends one command per round trip, and costs several times the CPU (docs/decisions.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import hiredis

from buckets.errors import Unanswered, Unavailable
from buckets.meter import Meter
from buckets.scripts import Value

log = logging.getLogger(__name__)

_MOST_UNSENT = 1 << 20  # bytes that Redis has not read yet; beyond that callers wait
_NOTHING = object()
_QUIET_S, _DEAF_S = 1.0, 2.25  # silence on a subscription before a PING is sent, and before it is given up
_LOOK_S = 0.25  # how often the silence is checked
LOST = "the subscription is lost: "

Orphan = Callable[[Any], None]
Took = Callable[[Any], None]
"""Called with the answer to a command: the reply, which may be an ErrorReply, or Unanswered if the link is lost."""


class ErrorReply(Exception):
    """An error reply of Redis, with Redis's own text. It takes the place of the reply, also inside a list."""


def _packed(command: Sequence[Value]) -> bytes:
    packed: bytes = hiredis.pack_command(tuple(command))  # type: ignore[arg-type]  # its types allow only one value
    return packed


def hang_up(connection: Any) -> None:
    """Close a connection of redis-py without waiting for unsent data, unlike `disconnect`."""
    with contextlib.suppress(Exception):
        if connection._writer:
            connection._writer.transport.abort()
        connection._close()


class Wire(asyncio.Protocol):
    """Turns bytes into replies, on the transport of a redis-py connection (untyped there)."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._replies = hiredis.Reader(replyError=ErrorReply, notEnoughData=_NOTHING)
        self._loop = asyncio.get_running_loop()
        self.lost = False
        self._closed = asyncio.Event()
        # redis-py has no public access to the transport. The handshake is over, and everything that it read has been
        # consumed.
        self._transport: asyncio.Transport = connection._writer.transport
        if self._transport.is_closing():  # its end may already have been reported to redis-py's protocol
            self._closed.set()
        self._transport.set_protocol(self)
        self._transport.set_write_buffer_limits(_MOST_UNSENT)

    def data_received(self, data: bytes) -> None:
        try:
            self._replies.feed(data)
            while (reply := self._replies.gets()) is not _NOTHING:
                self._take(reply)
        except hiredis.ProtocolError:  # the other side is not a Redis
            self.lose()

    def _take(self, reply: Any) -> None:
        raise NotImplementedError

    def connection_lost(self, exc: Exception | None) -> None:
        self.lose()
        self._closed.set()

    def lose(self) -> None:
        """Hang up without waiting for unsent data."""
        if self.lost:
            return
        self.lost = True
        hang_up(self._connection)
        self._end()

    async def closed(self) -> None:
        """Wait until the socket of a lost connection is closed."""
        await self._closed.wait()

    def _end(self) -> None:
        """Clean up after the loss of the connection."""


def _deliver(took: Took, answer: Any) -> None:
    """Pass an answer to its callback. A bug in the callback must not end the connection, on which others wait."""
    try:
        took(answer)
    except Exception:
        log.exception("answer.failed")


def _resolve(future: asyncio.Future[Any], orphan: Orphan | None, answer: Any) -> None:
    if isinstance(answer, Unanswered):
        if not future.done():
            future.set_exception(answer)
            future.exception()  # marked as retrieved, in case nobody waits
    elif not future.done():
        future.set_result(answer)
    elif orphan:
        orphan(answer)


class Link(Wire):
    """Commands and their answers: `send` passes the answer to a callback, `ask` returns a future. A lost link answers
    all pending commands with Unanswered."""

    def __init__(self, connection: Any, timeout_s: float, meter: Meter) -> None:
        super().__init__(connection)
        self._timeout_s = timeout_s
        self._meter = meter
        self._out: list[bytes] = []
        self._size = 0  # bytes in `_out`
        self._waiting: deque[tuple[float, Took]] = deque()
        self._room: asyncio.Future[None] | None = None  # set while Redis does not read
        self._leaving = False
        self._ended: Callable[[], None] | None = None
        self._watching = self._loop.call_later(timeout_s / 10, self._watch)

    def ask(self, command: Sequence[Value], orphan: Orphan | None = None) -> asyncio.Future[Any]:
        """Send a command with the next write. `orphan`: called with the answer if the future was cancelled
        meanwhile."""
        future = self._loop.create_future()
        if self.lost:
            _resolve(future, None, Unanswered())
        else:
            self.send(command, partial(_resolve, future, orphan))
        return future

    def send(self, command: Sequence[Value], took: Took) -> None:
        """Send a command with the next write. `took`: called with the answer later, never within this call."""
        if self.lost:
            self._loop.call_soon(took, Unanswered())
            return
        if not self._out:
            self._loop.call_soon(self.flush)
        packed = _packed(command)
        self._out.append(packed)
        self._size += len(packed)
        self._waiting.append((self._loop.time(), took))
        if self._size > _MOST_UNSENT:
            self.flush()  # the transport then calls `pause_writing` if there is no room for more

    def on_end(self, ended: Callable[[], None]) -> None:
        """Call `ended` when the link is lost, or now if it already is."""
        self._ended = ended
        if self.lost:
            ended()

    @property
    def silent_s(self) -> float:
        """How long the oldest pending command has been waiting for its answer."""
        return self._loop.time() - self._waiting[0][0] if self._waiting else 0.0

    def leave(self) -> None:
        """Hang up when all pending commands are answered; no more may be sent."""
        self._leaving = True
        if not self._waiting:
            self.lose()

    @property
    def room(self) -> asyncio.Future[None] | None:
        """A future that is done when Redis reads commands again, or None while Redis is reading. The commands of
        callers that do not wait for it pile up in memory."""
        return self._room

    def flush(self) -> None:
        """Write the commands that were sent until now."""
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
        if not self._waiting:  # an unsolicited error before Redis hangs up, such as "max number of clients"
            self.lose()
            return
        _deliver(self._waiting.popleft()[1], reply)
        if self._leaving and not self._waiting:
            self.lose()

    def _watch(self) -> None:
        """Hang up if Redis has owed an answer for the whole time-out, even if the socket reports no error."""
        if self.silent_s > self._timeout_s:
            self.lose()
            return
        self._watching = self._loop.call_later(self._timeout_s / 10, self._watch)

    def _end(self) -> None:
        self._watching.cancel()
        self.resume_writing()
        waiting, self._waiting = self._waiting, deque()
        for _, took in waiting:
            _deliver(took, Unanswered())
        if self._ended:
            self._ended()


class _Hearing:
    """One listener of a channel."""

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
                future.exception()  # marked as retrieved, in case nobody waits


class Ear(Wire):
    """A connection that listens to sharded channels (SSUBSCRIBE), to each until its subscription or the connection is
    lost.

    A listener alone would not notice that a server went silent without closing the connection, and would miss what is
    published meanwhile. So a quiet server is sent a PING, and the connection is given up if the server does not answer.
    """

    def __init__(self, connection: Any, timeout_s: float) -> None:
        super().__init__(connection)
        self._timeout_s = timeout_s
        self._hearings: list[_Hearing] = []  # few: one per shard
        self._last = self._loop.time()  # when Redis last sent something
        self._why = "the subscription is lost"
        self._pinged = False  # since `_last`
        self._watching = self._loop.call_later(_LOOK_S, self._watch)

    async def hear(self, channel: str, heard: Callable[[str], None], connected: Callable[[], None]) -> None:
        """Listen to a channel; `connected` is called when the subscription begins. When the subscription ends, raises
        Unavailable, TimeoutError, or the error that `heard` raised. The connection closes with its last listener."""
        hearing = _Hearing(channel, heard)
        self._hearings.append(hearing)
        try:
            if self.lost:
                raise Unavailable(self._why)
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
        if quiet > _DEAF_S and self._pinged:
            self._why = f"{LOST}it was deaf: Redis sent nothing for {quiet:.1f} s and did not answer a PING"
            self.lose()
            return
        if quiet > _QUIET_S and not self._pinged:
            self._pinged = True
            self._transport.write(_packed(("PING",)))
        self._watching = self._loop.call_later(_LOOK_S, self._watch)

    def _take(self, reply: Any) -> None:
        self._last, self._pinged = self._loop.time(), False
        if isinstance(reply, ErrorReply):  # for the first pending subscription: they are answered in order
            error = Unavailable(f"{LOST}{reply}")
            waiting = [hearing for hearing in self._hearings if not hearing.begun.done()]
            for hearing in waiting[:1]:
                hearing.fail(error)
        elif isinstance(reply, list) and reply[0] != b"pong":  # before the first subscription PONG is not a list
            for hearing in self._of(reply[1]):
                self._act(hearing, reply[0], reply[2])

    def _act(self, hearing: _Hearing, kind: bytes, payload: Any) -> None:
        if kind == b"smessage":
            try:
                hearing.heard(payload.decode("utf-8", "replace"))
            except Exception as error:
                hearing.fail(error)
        elif kind == b"ssubscribe" and not hearing.begun.done():
            hearing.begun.set_result(None)
        elif kind == b"sunsubscribe":  # unsolicited: its slot went to another server
            hearing.fail(Unavailable(f"{LOST}another server has the shard now"))

    def _end(self) -> None:
        self._watching.cancel()
        for hearing in self._hearings:
            hearing.fail(Unavailable(self._why))
