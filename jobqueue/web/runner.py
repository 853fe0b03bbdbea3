"""Runs an application on a port: its connections are ours until a request comes that is not simple."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

from aiohttp import web

from jobqueue.access.connections import ConnectionLimits
from jobqueue.access.loopback import are_loopback
from jobqueue.web.connection import Connection
from jobqueue.web.guard import Guard
from jobqueue.web.handed_over import watched
from jobqueue.web.port import Answerer, Port
from jobqueue.web.refusals import Refusing, in_json

BACKLOG = 1024  # connections that wait to be accepted; a client beyond them tries again a second later
_IDLE_S = 3630.0  # more than a proxy keeps a connection


class Runner:
    """An application on a port. Simple requests go to `answerer`, and connections keep to the limits.

    With `allows`, only the clients are let in whose address it allows. `grace_s`: how long requests in flight may take
    after `close`; `idle_s`: how long a connection is kept without a request.
    """

    def __init__(
        self,
        application: web.Application,
        answerer: Answerer,
        limits: ConnectionLimits,
        guard: Guard,
        allows: Callable[[object], bool] | None = None,
        *,
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
        self._port: Port | None = None
        self._server: asyncio.Server | None = None

    async def open(self, host: str, port: int, *, shared: bool = False) -> None:
        """Listen. `shared`: beside other processes. Raises OSError."""
        await self._aiohttp.setup()
        server, loop = self._aiohttp.server, asyncio.get_running_loop()
        assert server
        options: dict[str, Any] = {"access_log": None, "keepalive_timeout": self._idle_s}
        handler = partial(Refusing, server, loop=loop, **options)
        self._port = Port(self._answerer, self._limits, handler, self._allows, self._idle_s)
        self._server = await loop.create_server(
            partial(Connection, self._port),
            host,
            port,
            backlog=BACKLOG,
            reuse_port=shared or None,
            start_serving=False,
        )
        for each in self._server.sockets:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # what it accepts inherits this
        guarded = self._guard.before(
            server.request_handler, on_loopback=are_loopback(address[0] for address in self.addresses)
        )
        server.request_handler = watched(in_json(guarded))
        await self._server.start_serving()

    @property
    def addresses(self) -> list[Any]:
        """Those that it listens on."""
        return [each.getsockname() for each in self._server.sockets] if self._server else []

    def stop(self) -> None:
        """Take no more connections."""
        if self._server:
            self._server.close()

    async def close(self) -> None:
        """Take no more connections and requests, and let those in flight end."""
        self.stop()
        await asyncio.sleep(0)  # what has come before begins
        ends = [self._aiohttp.cleanup()]
        if self._port:
            ours = [each for each in self._limits.joined(Connection) if each.is_of(self._port)]
            ends.append(self._port.end(ours, self._grace_s))
        await asyncio.gather(*ends)
