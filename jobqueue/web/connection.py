"""A connection as it begins: serves simple requests, and is handed over to aiohttp at the first request that is not
simple.

After that, all bytes belong to aiohttp, because its parser cannot be asked whether it is between two requests.

One request of a connection is in flight at a time; bytes that a client sends ahead are kept, within bounds, until that
request is answered. A client that does not read its answers gets no more requests served, and a client that keeps us
waiting is disconnected: see `Peer`. An idle connection has neither a task nor a buffer.

On a port with TLS, a `Handshake` comes first. It counts as a connection, and a client may not keep it waiting longer
than any other connection. Each handshake uses the newest context, and its outcome is counted; a server that an event
loop makes with a context can do neither. So the loop only accepts the client here, and the handshake begins on a copy
of its socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Coroutine
from typing import Any, cast

from buckets.errors import NoRoom
from jobqueue.access.caller import CALLER, Cancellable
from jobqueue.access.connections import close_if_hung_up
from jobqueue.access.grants import GRANT, NOBODY, USER
from jobqueue.access.tls import Tls
from jobqueue.errors import BadHttp
from jobqueue.protocols import Reply
from jobqueue.tracing import TRACE
from jobqueue.web.answering import refusal
from jobqueue.web.fast_path import LONGEST_HEAD, SERVER, UNAUTHORIZED, Head, answered, begun, read, written
from jobqueue.web.handed_over import HandedOver
from jobqueue.web.peer import Awaited, Peer
from jobqueue.web.port import Port

MOST_AHEAD = 64 << 10  # bytes kept while a request is in flight; reading pauses after the read that exceeds them

_PROBES = (b"GET ", b"HEAD ")  # the requests of monitoring
_END = b"\r\n\r\n"


class Connection(Peer):
    """A connection that serves simple requests."""

    __slots__ = (
        "_doing",
        "_drained",
        "_is_held",
        "_is_last",
        "_is_lost",
        "_is_unread",
        "_kept",
        "_needed",
        "grant",
        "trace",
    )

    def __init__(self, port: Port) -> None:
        super().__init__(port)
        self._doing: Cancellable | None = None  # the request in flight
        self.grant = NOBODY
        """What the request in flight may do, for a task that may have to go on with the request."""
        self.trace = ""
        """Its context, for the same task: see `TRACE`."""
        self._kept: bytes | bytearray = b""  # received, but not processed yet
        self._needed = 0  # bytes of the first request in `_kept`, once its head is known
        self._is_unread = False  # whether the client must read before anything more is written
        self._drained: asyncio.Future[None] | None = None  # done when the client has read: a task waits for it
        self._is_held = False  # whether reading is paused
        self._is_last = False  # whether no further request is begun
        self._is_lost = False  # whether the connection is closed

    def data_received(self, data: bytes) -> None:
        """Bytes from the client. Nearly always they are one whole request."""
        if self._doing is None and not self._kept and not self._is_unread:
            end = data.find(_END, 0, LONGEST_HEAD) + 4
            head = read(data[:end]) if end > 3 else None
            if head and end + head.length == len(data) and self._takes(head.length) and not self.is_surplus:
                self._begin(data[end:], head)
                return
        if not self._is_last:
            self._keep(data)
            self._proceed()

    def _takes(self, length: int) -> bool:
        """Whether a request with a body of this many bytes is answered here."""
        answerer = self._port.answerer
        return length <= answerer.most_bytes and not answerer.closing

    def _keep(self, data: bytes) -> None:
        if not self._kept:
            self._kept = bytearray()
        self._kept += data
        has_room = self._port.limits.charge(len(data))
        if not has_room and len(self._kept) > MOST_AHEAD and self._doing is None:
            self._refuse(NoRoom("this process is receiving as many large requests as it may"))

    def _drop(self, size: int) -> None:
        """Forget the first `size` of the kept bytes."""
        self._port.limits.charge(-size)
        if size == len(self._kept):
            self._kept = b""
        elif isinstance(self._kept, bytearray):
            del self._kept[:size]

    def _proceed(self) -> None:
        """Begin the next request, if it is complete and its turn has come."""
        if self._wire.is_closing():  # the transport may have much to write before it reports the connection as lost
            self._close()
            return
        if not self._is_blocked() and len(self._kept) >= self._needed:
            self._begin_next()
        self._hold(len(self._kept) > MOST_AHEAD and self._is_blocked())

    def _is_blocked(self) -> bool:
        return self._doing is not None or self._is_unread

    def _hold(self, hold: bool) -> None:
        """Pause or resume reading."""
        if hold is not self._is_held and not self._wire.is_closing():
            self._is_held = hold
            if hold:
                self._wire.pause_reading()
            else:
                self._wire.resume_reading()

    def _begin_next(self) -> None:
        """Begin the first request in the kept bytes, if it is complete; if it is not simple, hand it over."""
        kept = self._kept
        end = kept.find(_END, 0, LONGEST_HEAD) + 4
        if end < 4:
            if not begun(bytes(kept)):
                self._hand_over()
            return
        head = read(bytes(kept[:end]))
        if head is None or not self._takes(head.length):
            self._hand_over()
            return
        self._needed = end + head.length
        if len(kept) < self._needed:
            return
        if self.is_surplus:
            self._refuse_surplus()
            return
        body = bytes(memoryview(kept)[end : self._needed])
        self._drop(self._needed)
        self._needed = 0
        self._begin(body, head)

    def _begin(self, body: bytes, head: Head) -> None:
        self._awaited = None
        try:
            doing = self._port.answerer.begin(body, head, self)
        except Exception as error:  # a bug
            self._fail(error)
            return
        if doing is not None:
            self._doing = doing

    def _hand_over(self) -> None:
        """Hand the kept bytes, and all that follow, over to aiohttp."""
        received = bytes(self._kept)
        if self.is_surplus and not received.startswith(_PROBES):
            self._refuse_surplus()
            return
        self._drop(len(received))
        self._hold(False)  # before aiohttp may pause reading itself
        self._is_last = True
        self._port.limits.leave(self)
        HandedOver(self._port).take_over(self._wire, received, is_surplus=self.is_surplus)

    def answer(self, body: bytes, request_id: str) -> None:
        """Answer the request in flight: see `Caller`."""
        self._doing = None
        if self._wire.is_closing():
            self._close()
        elif self._is_last or self._port.answerer.closing:
            self._wire.write(written(Reply(200, body), request_id, last=True))
            self._close()
        else:
            self._wire.write(answered(body, request_id))
            if self._kept:
                self._proceed()

    @property
    def is_behind(self) -> bool:
        """True if the client has not read everything that was written: see `Caller`."""
        return self._has_unsent()

    def has_hung_up(self) -> bool:
        """Whether the client is gone: see `Caller`."""
        try:
            close_if_hung_up(self._wire)
        except ConnectionResetError:
            return True
        return False

    def complete(self, work: Coroutine[Any, Any, None]) -> None:
        """Go on with a task: see `Caller`."""
        task = self._doing = self._port.loop.create_task(self._carry_out(work))
        if self._is_lost:
            self._port.loop.call_soon(task.cancel)

    async def _carry_out(self, work: Coroutine[Any, Any, None]) -> None:
        CALLER.set(self)
        GRANT.set(self.grant)
        USER.set("")
        TRACE.set(self.trace)
        try:
            await work
        except Exception as error:  # a bug
            self._fail(error)
        except BaseException:
            self._is_last = True
            raise
        finally:
            self._doing = None
            if self._is_last:
                self._close()
            else:
                self._proceed()

    async def send(self, reply: Reply, request_id: str, *, has_jobs: bool) -> None:
        """Write the answer to the request in flight, and wait until the client reads: see `Client`."""
        if has_jobs:
            close_if_hung_up(self._wire)
        if self._wire.is_closing():
            raise ConnectionResetError("the client is gone")
        self._is_last |= self._port.answerer.closing or reply.status == UNAUTHORIZED
        self._wire.write(written(reply, request_id, last=self._is_last))
        if self._is_unread:
            self._drained = self._port.loop.create_future()
            await self._drained

    def pause_writing(self) -> None:
        """The client does not read."""
        self._is_unread = True

    def resume_writing(self) -> None:
        """The client has read."""
        self._is_unread = False
        drained, self._drained = self._drained, None
        if drained is not None and not drained.done():
            drained.set_result(None)
        elif self._doing is None:
            self._proceed()

    def _fail(self, error: Exception) -> None:
        """Report a bug, and close the connection."""
        self._doing = None
        self._refuse(error)

    def _refuse_surplus(self) -> None:
        self._refuse(NoRoom("this process has as many connections as it may have"))

    def _refuse(self, error: Exception) -> None:
        reply = refusal(error)
        if not self._wire.is_closing():
            self._wire.write(written(reply, "", last=True))
        self._close()

    def _close(self) -> None:
        """Close the connection after what is written; no more requests begin."""
        self._is_last = True
        self._drop(len(self._kept))
        self._hang_up()
        if self._is_lost and self._doing is None:
            self._port.leave(self)

    def end(self) -> None:
        """Accept no more requests: see `Ending`."""
        self._is_last = True
        if self._doing is None:
            self._close()

    def abort(self) -> None:
        """Close now: see `Ending`."""
        self._wire.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        """The client is gone, or the connection was closed here."""
        super().connection_lost(exc)
        self._is_lost = True
        if isinstance(self._doing, asyncio.Task):
            self._port.loop.call_soon(self._doing.cancel)  # in the next turn: the task has begun by then
        elif self._doing is not None:
            self._doing.cancel()
            self._doing = None
        self._close()

    def _awaits(self) -> Awaited:
        if self._doing is not None:
            return Awaited.NOTHING
        if self._kept:
            return Awaited.REST
        return Awaited.FIRST if self._awaited is Awaited.FIRST else Awaited.NEXT


_IS_PLAIN = "HTTP_REQUEST"  # OpenSSL's reason for a client that begins with an HTTP method
_BODY = refusal(BadHttp("this port speaks TLS: use https://")).body
_SPEAKS_TLS = (
    f"HTTP/1.1 400 Bad Request\r\nServer: {SERVER}\r\nContent-Type: application/json\r\n"
    f"Content-Length: {len(_BODY)}\r\nConnection: close\r\n\r\n"
).encode() + _BODY


class Handshake(asyncio.Protocol):
    """The beginning of a connection with TLS."""

    __slots__ = ("_since", "_task", "_tls", "port")

    def __init__(self, port: Port) -> None:
        assert port.tls
        self.port = port
        self._tls: Tls = port.tls
        self._task: asyncio.Task[None] | None = None
        self._since = 0.0  # loop time of the first visit

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        allows = self.port.allows
        if self.port.limits.join(self) and (not allows or allows(transport.get_extra_info("peername"))):
            number = transport.get_extra_info("socket").fileno()
            try:
                own, plain = socket.socket(fileno=os.dup(number)), socket.socket(fileno=os.dup(number))
            except OSError as error:  # this process has as many open files as it may have
                self._tls.shook_hands(error)
                self.leave()
            else:
                own.setblocking(False)
                self._task = self.port.loop.create_task(self._shake_hands(own, plain))
        else:
            self.leave()
        cast(asyncio.Transport, transport).abort()  # nothing has been read from it; the copies of its socket stay open

    async def _shake_hands(self, own: socket.socket, plain: socket.socket) -> None:
        """Shake hands on `own`. `plain`: the same connection, for an answer without TLS."""
        longest_s = self.port.limits.timeout_s
        connection = _Shaken(self, self._tls)
        try:
            secure, _ = await self.port.loop.connect_accepted_socket(
                lambda: connection,
                own,
                ssl=self._tls.context,
                ssl_handshake_timeout=longest_s,
                ssl_shutdown_timeout=longest_s,
            )
            if secure.get_extra_info("cipher") is None:  # the connection was lost meanwhile
                raise ConnectionResetError("the client is gone")
        except OSError as error:
            self._tls.shook_hands(error)
            if isinstance(error, ssl.SSLError) and error.reason == _IS_PLAIN:
                with contextlib.suppress(OSError):
                    plain.send(_SPEAKS_TLS)
        else:
            self._tls.shook_hands()
        finally:
            plain.close()
            self.leave()

    def leave(self) -> None:
        """The handshake is over, and no longer counts as a connection."""
        self.port.limits.leave(self)

    def visit(self, now: float, timeout_s: float) -> None:
        """Disconnect a client that has not shaken hands for `timeout_s`: see `Visited`."""
        self._since = self._since or now
        if now - self._since >= timeout_s:
            self.abort()

    def is_of(self, port: Port) -> bool:
        """Whether it came in through this port."""
        return self.port is port

    def abort(self) -> None:
        """Close now."""
        if self._task:
            self._task.cancel()


class _Shaken(Connection):
    """The connection that follows a handshake."""

    __slots__ = ("_authority", "_handshake", "_tls")

    def __init__(self, handshake: Handshake, tls: Tls) -> None:
        super().__init__(handshake.port)
        self._handshake = handshake
        self._tls, self._authority = tls, tls.authority

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The handshake is over."""
        self._handshake.leave()
        super().connection_made(transport)
        if self._authority != self._tls.authority:  # the authority has changed meanwhile
            self.end()

    def _has_unsent(self) -> bool:
        """Like `Peer._has_unsent`, but False before the client has sent anything: then only TLS tickets can be unsent.
        They leave with the next byte, so waiting for the client to read them would never end the connection."""
        return self._awaited is not Awaited.FIRST and super()._has_unsent()
