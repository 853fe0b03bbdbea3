"""Runs an application on a port: its connections are ours until a request comes that is not simple."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

from aiohttp import web

from jobqueue.access.connections import ConnectionLimits
from jobqueue.access.tls import Tls
from jobqueue.web.connection import Connection
from jobqueue.web.guard import Guard
from jobqueue.web.handed_over import HandedOver, watched
from jobqueue.web.handshake import Handshake
from jobqueue.web.port import Answerer, Port
from jobqueue.web.refusals import Refusing, in_json

BACKLOG = 1024  # connections that wait to be accepted; a client beyond them tries again a second later
_IDLE_S = 3630.0  # more than a proxy keeps a connection


class Runner:
    """An application on a port. Simple requests go to `answerer`, and connections keep to the limits.

    With `allows`, only the clients are let in whose address it allows. `tls`: on the port, not on the Unix socket.
    `grace_s`: how long requests in flight may take after `close`; `idle_s`: how long a connection is kept without a
    request.
    """

    def __init__(
        self,
        application: web.Application,
        answerer: Answerer,
        limits: ConnectionLimits,
        guard: Guard,
        allows: Callable[[object], bool] | None = None,
        *,
        tls: Tls | None = None,
        grace_s: float = 60.0,
        idle_s: float = _IDLE_S,
    ) -> None:
        self._aiohttp = web.AppRunner(
            application,
            handler_cancellation=True,  # off by default; without it the pop of a client that is gone would go on
            access_log=None,
            shutdown_timeout=grace_s,
        )
        self._answerer = answerer
        self._limits = limits
        self._guard = guard
        self._allows = allows
        self._grace_s = grace_s
        self._idle_s = idle_s
        self._tls = tls
        self._ports: list[Port] = []
        self._servers: list[asyncio.Server] = []

    async def open(self, host: str, port: int, *, shared: bool = False, unix: socket.socket | None = None) -> None:
        """Listen. `shared`: beside other processes; `unix`: a socket that listens already. Raises OSError."""
        await self._aiohttp.setup()
        server = self._aiohttp.server
        assert server
        server.request_handler = watched(in_json(self._guard.before(server.request_handler)))
        await self._listen(self._made_port(tls=self._tls), host=host, port=port, reuse_port=shared or None)
        if unix:
            await self._listen(self._made_port(), sock=unix)

    def _made_port(self, tls: Tls | None = None) -> Port:
        server, loop = self._aiohttp.server, asyncio.get_running_loop()
        assert server
        options: dict[str, Any] = {
            "access_log": None,
            "auto_decompress": False,  # it would be done on the loop, before anyone asks for the body or a token
            "keepalive_timeout": self._idle_s,
        }
        handler = partial(Refusing, server, loop=loop, **options)
        return Port(self._answerer, self._limits, handler, self._allows, self._idle_s, tls)

    async def _listen(self, side: Port, **where: Any) -> None:
        connection = partial(Handshake if side.tls else Connection, side)
        server = await side.loop.create_server(connection, **where, backlog=BACKLOG, start_serving=False)
        self._ports.append(side)
        self._servers.append(server)
        for each in server.sockets:
            if each.family != socket.AF_UNIX:
                each.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # what it accepts inherits this
                side.addresses.append(each.getsockname())
        await server.start_serving()

    @property
    def addresses(self) -> list[Any]:
        """Those that it listens on, but for a Unix socket."""
        return [address for port in self._ports for address in port.addresses]

    def stop(self) -> None:
        """Take no more connections."""
        for server in self._servers:
            server.close()

    async def renew(self) -> None:
        """End the connections that there are, within `grace_s`: the idle ones now, the others behind their answers."""
        await asyncio.gather(*(port.end(self._of(port, Connection, HandedOver), self._grace_s) for port in self._ports))

    async def close(self) -> None:
        """Take no more connections and requests, and let those in flight end."""
        self.stop()
        await asyncio.sleep(0)  # what has come before begins
        for handshake in self._limits.joined(Handshake):
            handshake.abort()
        ends = [port.end(self._of(port, Connection), self._grace_s) for port in self._ports]
        await asyncio.gather(self._aiohttp.cleanup(), *ends)

    def _of(self, port: Port, *kinds: type[Connection | HandedOver]) -> list[Connection | HandedOver]:
        """The connections of a port."""
        return [each for kind in kinds for each in self._limits.joined(kind) if each.is_of(port)]
