"""An HTTP connection, whether we or aiohttp read its bytes: its client may keep us waiting only for a limited time.

A loop visits each connection now and then (see `ConnectionLimits`), and looks at what the connection awaits from its
client. So a request needs no timer, and hardly any bookkeeping: it only marks that it has begun.
"""

from __future__ import annotations

import asyncio
import enum
from typing import Any, cast

from jobqueue.access.connections import is_writable
from jobqueue.access.tls import names_of
from jobqueue.errors import TooSlow
from jobqueue.web.port import Port

_SHUTDOWN_S = 1.0  # for a client to answer the end of TLS
_MOST_UNSENT = 64 << 10  # bytes that wait to be encrypted; with more of them, the client counts as not reading


class Awaited(enum.Enum):
    """What a client has to do next."""

    FIRST = enum.auto()  # to send something: it has sent nothing since it connected
    REST = enum.auto()  # to send the rest of a request
    READING = enum.auto()  # to read its answer
    NEXT = enum.auto()  # to send a request, whenever it likes
    NOTHING = enum.auto()  # nothing: it waits for us


class Peer(asyncio.Protocol):
    """A connection of a client."""

    __slots__ = ("_awaited", "_is_ending", "_port", "_since", "_wire", "certificate_names", "is_surplus")

    def __init__(self, port: Port) -> None:
        self._port = port
        self._wire: asyncio.Transport = None  # type: ignore[assignment]  # set before all else
        self._awaited: Awaited | None = Awaited.FIRST  # None: a request has begun since the last visit
        self._since = 0.0  # loop time of the first visit that found `_awaited`; 0 if none has
        self._is_ending = False  # whether it is closed once the client has read everything
        self.is_surplus = False
        """Whether this connection exceeds the limit, so that it may only ask for the health of the service."""
        self.certificate_names: tuple[str, ...] = ()
        """The URIs and DNS names in the client's certificate, which an authority of ours has signed."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected, and with TLS its handshake is over."""
        self._wire = cast(asyncio.Transport, transport)
        if self._port.tls:
            self._wire.set_write_buffer_limits(_MOST_UNSENT)  # as without TLS; the default for TLS is 8 times higher
            self.certificate_names = names_of(transport.get_extra_info("peercert"))
        limits, allows = self._port.limits, self._port.allows
        self.is_surplus = limits.is_full
        if not limits.join(self) or (allows and not allows(transport.get_extra_info("peername"))):
            self._wire.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        """The client is gone, or the connection was closed here."""
        self._port.limits.leave(self)

    def is_of(self, port: Port) -> bool:
        """Whether the connection came in through this port."""
        return self._port is port

    @property
    def is_on_loopback(self) -> bool:
        """True if the connection came in through a port that only this machine reaches, and not a Unix socket."""
        return self._port.is_on_loopback

    @property
    def is_connected(self) -> bool:
        """Whether the client is still there, as far as is known."""
        return not self._wire.is_closing()

    @property
    def host(self) -> str:
        """The client's IP address, or an empty string for a Unix socket."""
        peer: Any = self._wire.get_extra_info("peername")
        return str(peer[0]) if isinstance(peer, tuple) else ""

    @property
    def address(self) -> str:
        """The client's address and port."""
        peer: Any = self._wire.get_extra_info("peername")
        if not isinstance(peer, tuple):
            return "unix"
        host, port = peer[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def visit(self, now: float, timeout_s: float) -> None:
        """Disconnect a client that has kept us waiting for `timeout_s`; it gets 408 if its request had begun."""
        if self._is_ending:
            self._hang_up()
        awaited = Awaited.READING if self._has_unsent() else self._awaits()
        if awaited is not self._awaited or not self._since:
            self._awaited, self._since = awaited, now
        elif now - self._since < (self._port.idle_s if awaited is Awaited.NEXT else timeout_s):
            return
        elif awaited is Awaited.READING:
            self._wire.abort()
        elif awaited is Awaited.REST:
            self._refuse(TooSlow(f"the request was not complete within {timeout_s:g} s"))
        elif awaited is not Awaited.NOTHING:
            self._hang_up()

    def _has_unsent(self) -> bool:
        """Whether some written bytes have reached neither the client nor the system's buffer."""
        wire = self._wire
        if wire.get_write_buffer_size():
            return True  # encrypted bytes do not count in this size
        return self._port.tls is not None and not wire.is_closing() and not is_writable(wire)

    def _hang_up(self) -> None:
        """Close the connection after what is written. The client must answer the end of TLS, and many clients do so
        only with their next request. So the end of TLS is sent once the client has read everything else, and its answer
        is not awaited for long."""
        wire = self._wire
        if self._port.tls and not wire.is_closing():
            wire.pause_reading()  # otherwise bytes that arrive while it closes would be read as a request
            self._is_ending = self._has_unsent()
            if not self._is_ending:
                self._port.loop.call_later(_SHUTDOWN_S, wire.abort)
        if not self._is_ending:
            wire.close()

    def _awaits(self) -> Awaited:
        """What is awaited from a client that has read all answers."""
        raise NotImplementedError

    def _refuse(self, error: Exception) -> None:
        """Answer an incomplete request with an error, and close the connection."""
        raise NotImplementedError
