"""A connection to a port with TLS until its handshake is over; then a `Connection` takes its place.

It is one of the connections that there may be, and a client may keep it waiting for no longer than any other. Each
handshake has the newest context. What the client sends behind it is kept until the connection is there to take it.
"""

from __future__ import annotations

import asyncio
from typing import cast

from jobqueue.access.tls import Tls
from jobqueue.web.connection import Connection
from jobqueue.web.port import Port


class Handshake(asyncio.Protocol):
    """The beginning of a connection with TLS."""

    __slots__ = ("_is_lost", "_port", "_received", "_since", "_task", "_tls", "_wire")

    def __init__(self, port: Port) -> None:
        assert port.tls
        self._port = port
        self._tls: Tls = port.tls
        self._wire: asyncio.Transport = None  # type: ignore[assignment]  # set before all else
        self._task: asyncio.Task[None] | None = None
        self._received = bytearray()
        self._since = 0.0  # loop time of the first visit
        self._is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self._wire = cast(asyncio.Transport, transport)
        allows = self._port.allows
        if not self._port.limits.join(self) or (allows and not allows(transport.get_extra_info("peername"))):
            self._port.limits.leave(self)
            self._wire.abort()
            return
        self._wire.pause_reading()  # what comes is for the handshake
        self._task = self._port.loop.create_task(self._shake_hands())

    async def _shake_hands(self) -> None:
        longest_s, authority = self._port.limits.timeout_s, self._tls.authority
        try:
            secure = await self._port.loop.start_tls(
                *(self._wire, self, self._tls.context),
                server_side=True,
                ssl_handshake_timeout=longest_s,
                ssl_shutdown_timeout=longest_s,
            )
            if secure is None or secure.get_extra_info("cipher") is None:  # it was lost meanwhile
                raise ConnectionResetError("the client is gone")
        except OSError as error:
            self._tls.shook_hands(error)
            self._wire.abort()
        else:
            self._tls.shook_hands()
            if not self._is_lost and not secure.is_closing():
                self._go_on(secure, authority)
        finally:
            self._port.limits.leave(self)

    def _go_on(self, secure: asyncio.Transport, authority: int) -> None:
        self._port.limits.leave(self)
        connection = Connection(self._port)
        secure.set_protocol(connection)
        connection.connection_made(secure, self._wire)
        if authority != self._tls.authority:  # it has changed meanwhile
            connection.end()
        elif self._received:
            connection.data_received(bytes(self._received))

    def data_received(self, data: bytes) -> None:
        """Bytes behind the handshake."""
        self._received += data

    def connection_lost(self, exc: BaseException | None) -> None:
        """The client is gone."""
        self._is_lost = True
        self._port.limits.leave(self)

    def visit(self, now: float, timeout_s: float) -> None:
        """Disconnect a client that has not shaken hands for `timeout_s`: see `Visited`."""
        self._since = self._since or now
        if now - self._since >= timeout_s:
            self.abort()

    def is_of(self, port: Port) -> bool:
        """Whether it came in through this port."""
        return self._port is port

    def abort(self) -> None:
        """Close now."""
        self._wire.abort()
