"""TCP connections of a dialect: which networks may connect, how many connections there may be, how long a client may
keep the service waiting, and how they end.

One request of a connection is answered at a time; bytes that a client sends ahead are kept, within bounds, until the
request is answered. Callbacks answer a request, if the subclass can do that, or else a task that ends with the answer:
an idle connection costs only a socket and a `Stream`. A client that does not read its answers gets no more requests
answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from functools import partial
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any, ClassVar, Generic, TypeVar, cast

import structlog

from jobqueue.access.caller import CALLER
from jobqueue.access.connections import ConnectionLimits, has_hung_up
from jobqueue.access.grants import GRANT, NOBODY, USER


def allows(networks: tuple[str, ...], peer: Any) -> bool:
    """Whether a client may use a dialect. `peer`: its address as the socket has it (`peername`, or the sender of a
    datagram); a peer without an IP address may not."""
    try:
        address = ip_address(peer[0])
    except (ValueError, TypeError, IndexError):
        return False
    mapped = address.ipv4_mapped if address.version == 6 else None
    return any(each in network for network in _parsed(networks) for each in (address, mapped) if each is not None)


@functools.lru_cache(maxsize=64)
def _parsed(networks: tuple[str, ...]) -> list[IPv4Network | IPv6Network]:
    return [ip_network(each) for each in networks]


log = structlog.get_logger()

MOST_AHEAD = 64 << 10  # bytes kept while a request is in flight; reading pauses after the read that exceeds them
_KEEP_ALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}  # s, s, unanswered probes

Request = TypeVar("Request")
Outcome = TypeVar("Outcome")


class Streams:
    """The connections of a dialect in this process."""

    def __init__(self, limits: ConnectionLimits, allow: Callable[[], tuple[str, ...]]) -> None:
        """`allow`: the networks that may connect, as the settings have them now."""
        self.limits = limits
        self._allow = allow
        self.open: set[Stream[Any]] = set()
        self.draining = False
        self.total = 0
        """How many connections have been accepted."""
        self._none_open = asyncio.Event()

    def enter(self, stream: Stream[Any], peer: Any) -> bool:
        """Register a new connection; returns False if it must be closed."""
        if self.draining or self.limits.is_full or not allows(self._allow(), peer) or not self.limits.join(stream):
            return False
        self.open.add(stream)
        self.total += 1
        return True

    def leave(self, stream: Stream[Any]) -> None:
        """Forget a connection that is gone."""
        self.limits.leave(stream)
        self.open.discard(stream)
        if not self.open:
            self._none_open.set()

    def drain(self) -> None:
        """Let each connection end when it can."""
        self.draining = True
        for stream in list(self.open):
            stream.drain()

    async def close(self, grace_s: float) -> None:
        """Wait until all connections have ended; abort those left after `grace_s`."""
        self.drain()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self._until_none()
        for stream in list(self.open):
            stream.abort()
        await self._until_none()

    async def _until_none(self) -> None:
        while self.open:
            self._none_open.clear()
            await self._none_open.wait()


class Stream(asyncio.Protocol, ABC, Generic[Request]):
    """One connection. Subclasses read and answer its requests."""

    may_be_idle: ClassVar[bool] = False
    """Whether a client may stay connected without a request for as long as it likes."""

    __slots__ = (
        *("_charged", "_has_begun", "_has_ended", "_is_unread", "_late_since", "_loop", "_peer", "_served"),
        *("_served_at_visit", "_streams", "_task", "_unread_since", "grant", "is_waiting", "received", "transport"),
    )

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._loop = asyncio.get_running_loop()
        self.received = bytearray()
        """Bytes that are not parsed yet; `take` removes those of a request."""
        self.transport: asyncio.Transport | None = None
        """None before the connection is made and after it is lost."""
        self.grant = NOBODY
        """What the request in flight may do, if the subclass knows this when the request begins."""
        self.is_waiting = False
        """True if the request in flight, or all that is left of it, waits or hands out jobs: it is cancelled when the
        client sends no more."""
        self._peer: Any = None
        self._charged = 0  # bytes of an incomplete request
        self._task: asyncio.Task[None] | None = None  # answers the request in flight
        self._has_begun = False  # whether callbacks answer the request in flight
        self._is_unread = False  # whether the client does not read its answers
        self._has_ended = False  # whether the client sends no more
        self._late_since = 0.0  # loop time since which a request is awaited; 0 if none is
        self._unread_since = 0.0  # loop time since which the client has not read its answer
        self._served = 0
        self._served_at_visit = 0

    @abstractmethod
    def take(self) -> Request | None:
        """Remove the first complete request from `received` and return it, or return None if there is none."""

    def begin(self, request: Request) -> bool:
        """Begin to answer a request without a task: `answered` or `complete` follows later. Returns False if it did
        nothing and `answer` must handle the request."""
        return False

    @abstractmethod
    async def answer(self, request: Request) -> None:
        """Answer a request. Cancelled when the client is gone."""

    def is_amid(self) -> bool:
        """Whether the client has sent a part of a request, but not all of it."""
        return bool(self.received)

    def drain(self) -> None:
        """The service begins to stop: end once the received requests are answered."""
        if not self.is_busy:
            self.close()

    def entered(self) -> None:
        """The connection has been accepted; `lost` is called when it is gone."""

    def lost(self) -> None:
        """The connection is gone."""

    @property
    def is_busy(self) -> bool:
        """Whether a request is being answered, or others wait until the client reads its answers."""
        return self._task is not None or self._has_begun or self._is_unread

    @property
    def is_connected(self) -> bool:
        """Whether the client is still there, as far as is known."""
        return self.transport is not None

    @property
    def is_closing(self) -> bool:
        """Whether nothing more can be written."""
        return self.transport is None or self.transport.is_closing()

    @property
    def has_ended(self) -> bool:
        """Whether the client sends no more."""
        return self._has_ended

    @property
    def host(self) -> str:
        """The client's address, without a port."""
        host: str = self._peer[0]
        return host

    @property
    def address(self) -> str:
        """The client's address and port."""
        host, port = self._peer[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self.transport = cast(asyncio.Transport, transport)
        self._peer = transport.get_extra_info("peername")
        if not self._streams.enter(self, self._peer):
            self.transport.abort()
            return
        self._late_since = 0.0 if self.may_be_idle else self._loop.time()
        _keep_alive(transport.get_extra_info("socket"))
        self.entered()

    def data_received(self, data: bytes) -> None:
        """Bytes from the client."""
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        self.received += data
        if self._task is None and not self._has_begun and not self._is_unread:
            self._begin_next()
        elif len(self.received) > MOST_AHEAD:
            transport.pause_reading()
        if len(self.received) != self._charged:
            self._charge()

    def _go_on(self) -> None:
        """Begin the next request, if there is one and its turn has come."""
        if not self.is_busy and not self.is_closing:
            self._begin_next()

    def _begin_next(self) -> None:
        try:
            request = self.take()
            if request is None:
                self._rest()
                return
            self._has_begun = self.begin(request)
        except Exception as error:
            self._fail(error)
            return
        if not self._has_begun:
            self._start(partial(self.answer, request))

    def _start(self, answer: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._task = self._loop.create_task(self._serve(answer))

    def _fail(self, error: Exception) -> None:
        """Log a bug, and close the connection."""
        log.error("client.failed", exc_info=error)
        self.close()

    def answered(self, data: bytes) -> None:
        """Send the answer to the request that `begin` began, and go on with the next request."""
        self._has_begun = False
        self._served += 1
        transport = self.transport
        if transport is not None and not transport.is_closing():
            transport.write(data)
            self._go_on()

    def complete(self, answer: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Go on with a task to answer the request that `begin` began."""
        self._has_begun = False
        if not self.is_closing:
            self._start(answer)

    def taking(self, take: Callable[[Outcome], None]) -> Callable[[Outcome], None]:
        """A callback for `begin`: a bug in it closes the connection."""

        def took(outcome: Outcome) -> None:
            try:
                take(outcome)
            except Exception as error:
                self._fail(error)

        return took

    def _charge(self) -> None:
        size = len(self.received)
        has_room = self._streams.limits.charge(size - self._charged)
        self._charged = size
        if not has_room and size > MOST_AHEAD:
            self.abort()

    async def _serve(self, answer: Callable[[], Coroutine[Any, Any, None]]) -> None:
        CALLER.set(self)
        GRANT.set(self.grant)
        USER.set("")
        try:
            await answer()
        except (ConnectionError, asyncio.CancelledError):
            self.close()
        except Exception as error:
            self._fail(error)
        self._task = None
        self._served += 1
        self._go_on()

    def _rest(self) -> None:
        """All requests that have come are answered."""
        if self._charged != len(self.received):
            self._charge()
        if self._has_ended:
            self.close()
        elif self._streams.draining:
            self.drain()
        if self.transport is not None and not (self.transport.is_closing() or self.transport.is_reading()):
            self.transport.resume_reading()

    def write(self, data: bytes) -> None:
        """Send an answer. What is written in one turn of the event loop travels together."""
        if self.transport is None or self.transport.is_closing():
            raise ConnectionResetError("the client is gone")
        self.transport.write(data)

    def check_client(self) -> None:
        """Raises ConnectionError if the client has hung up. Call it before a request waits, and before jobs are
        written."""
        if self.transport is None or self.transport.is_closing() or has_hung_up(self.transport):
            self.close()
            raise ConnectionResetError("the client is gone")

    def pause_writing(self) -> None:
        """The client does not read its answers."""
        self._is_unread = True

    def resume_writing(self) -> None:
        """The client has read enough of its answers."""
        self._is_unread = False
        self._go_on()

    def eof_received(self) -> bool:
        """The client sends no more; it gets the answers to what it has sent."""
        self._has_ended = True
        if self.is_waiting or not self.is_busy:
            self.close()
        return True

    def close(self) -> None:
        """Close the connection after what is written."""
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        """Close the connection now."""
        if self.transport is not None:
            self.transport.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        """The client is gone, or the connection was closed here."""
        self.transport = None
        self.received.clear()
        self._charge()
        if self._task is not None:
            self._task.cancel()
        if self in self._streams.open:
            self._streams.leave(self)
            self.lost()

    def visit(self, now: float, timeout_s: float) -> None:
        """Disconnect a client that has kept us waiting for `timeout_s`, or hung up while nothing was read."""
        if self.transport is None:
            return
        if self.is_waiting and not self.transport.is_reading() and has_hung_up(self.transport):
            self.abort()
            return
        visited, self._served_at_visit = self._served_at_visit, self._served
        if visited != self._served:
            self._late_since = self._unread_since = 0.0
        self._unread_since = (self._unread_since or now) if self.transport.get_write_buffer_size() else 0.0
        self._late_since = (self._late_since or now) if self._is_late() else 0.0
        if any(since and now - since >= timeout_s for since in (self._unread_since, self._late_since)):
            self.abort()

    def _is_late(self) -> bool:
        """Whether the client still has to send a request, or the rest of one."""
        return not self.is_busy and (not self.may_be_idle or self.is_amid())


def _keep_alive(wire: socket.socket) -> None:
    """Make the system detect a host that has vanished."""
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE.items():
        if hasattr(socket, name):  # macOS does not have all of them
            wire.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
