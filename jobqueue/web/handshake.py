"""A connection to a port with TLS until its handshake is over; then a `Connection` takes its place.

It is one of the connections that there may be, and a client may keep it waiting for no longer than any other. Each
handshake has the newest context, and how it ended is counted: a server that an event loop makes with a context tells
neither. So the loop only accepts the client here, and its socket begins anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from typing import cast

from jobqueue.access.tls import Tls
from jobqueue.errors import BadHttp
from jobqueue.web.connection import Connection
from jobqueue.web.fast_path import SERVER
from jobqueue.web.peer import Awaited
from jobqueue.web.port import Port
from jobqueue.web.refusals import refusal

_IS_PLAIN = "HTTP_REQUEST"  # what OpenSSL says of a client that begins with a method of HTTP
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
            except OSError as error:  # there are as many files as there may be
                self._tls.shook_hands(error)
                self.leave()
            else:
                own.setblocking(False)
                self._task = self.port.loop.create_task(self._shake_hands(own, plain))
        else:
            self.leave()
        cast(asyncio.Transport, transport).abort()  # nothing has been read from it, and the other one stays open

    async def _shake_hands(self, own: socket.socket, plain: socket.socket) -> None:
        """`plain`: the same connection, for what is said without TLS."""
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
            if secure.get_extra_info("cipher") is None:  # it was lost meanwhile
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
        """It is over, and is one of the connections no more."""
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
        if self._authority != self._tls.authority:  # it has changed meanwhile
            self.end()

    def _has_unsent(self) -> bool:
        """As of others. Before the client has sent anything only tickets of TLS may wait, which go with the next byte:
        who waited for them to be taken would never end the connection."""
        return self._awaited is not Awaited.FIRST and super()._has_unsent()
