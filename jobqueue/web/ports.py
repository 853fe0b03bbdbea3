"""The ports of a process: the port of the service, and those of the dialects that have one of their own.

They close together: first all stop accepting connections and requests, then requests in flight have `grace_s` to end.
On a port, an aiohttp application runs behind our own connections, which hand over to it at the first request that is
not simple.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import structlog
from aiohttp import web

from buckets import Waiting
from jobqueue.access.connections import ConnectionLimits
from jobqueue.access.tls import Tls
from jobqueue.protocols import Dialect, HttpDialect, SocketDialect
from jobqueue.settings import Settings
from jobqueue.web.answering import Guard, Refusing, in_json
from jobqueue.web.connection import Connection, Handshake
from jobqueue.web.fast_path import Head
from jobqueue.web.handed_over import HandedOver, watched
from jobqueue.web.port import Answerer, Port, SimpleClient, blamed_on, datagram_sockets, url_of
from jobqueue.web.site import Web

BACKLOG = 1024  # connections that wait to be accepted; a client beyond them tries again a second later
_IDLE_S = 3630.0  # longer than a proxy keeps an idle connection


class Runner:
    """An application on a port. Simple requests go to `answerer`, and connections keep to the limits.

    With `allows`, only clients whose address it allows may connect. `tls`: the TLS of the port; the Unix socket has
    none. `grace_s`: how long requests in flight may take after `close`; `idle_s`: how long a connection is kept without
    a request.
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
        """Listen. `shared`: True if other processes use the port, too; `unix`: a listening Unix socket to serve, too.
        Raises OSError."""
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
            "auto_decompress": False,  # it would run on the loop, before the token is checked and the body is read
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
                each.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # accepted connections inherit this
                side.addresses.append(each.getsockname())
        await server.start_serving()

    @property
    def addresses(self) -> list[Any]:
        """The addresses that it listens on, except a Unix socket."""
        return [address for port in self._ports for address in port.addresses]

    def stop(self) -> None:
        """Accept no more connections."""
        for server in self._servers:
            server.close()

    async def renew(self) -> None:
        """Close open connections within `grace_s`: idle ones now, the rest after their answers."""
        await asyncio.gather(*(port.end(self._of(port, Connection, HandedOver), self._grace_s) for port in self._ports))

    async def close(self) -> None:
        """Accept no more connections and requests, and let requests in flight end."""
        self.stop()
        await asyncio.sleep(0)  # requests that have already come begin first
        for handshake in self._limits.joined(Handshake):
            handshake.abort()
        ends = [port.end(self._of(port, Connection), self._grace_s) for port in self._ports]
        await asyncio.gather(self._aiohttp.cleanup(), *ends)

    def _of(self, port: Port, *kinds: type[Connection | HandedOver]) -> list[Connection | HandedOver]:
        """The connections of a port."""
        return [each for kind in kinds for each in self._limits.joined(kind) if each.is_of(port)]


log = structlog.get_logger()


class Ports:
    """The ports of one process. `shared`: True if other processes use the ports, too; `tls`: the TLS of the HTTP ports,
    or None."""

    def __init__(
        self, settings: Settings, limits: ConnectionLimits, guard: Guard, tls: Tls | None = None, *, shared: bool
    ) -> None:
        self._settings = settings
        self._limits = limits
        self._guard = guard
        self._tls = tls
        self._renewals: set[asyncio.Task[None]] = set()
        if tls:
            tls.on_new_authority.append(self._renew)
        self._shared = shared
        self._runners: list[Runner] = []
        self._servers: list[asyncio.Server] = []
        self._datagrams: list[asyncio.DatagramTransport] = []

    async def open(self, site_web: Web, dialects: Mapping[str, Dialect[Any]], unix: socket.socket | None = None) -> str:
        """Listen; returns the URL of the service. `unix`: a Unix socket to serve besides its port. Raises Unfit for the
        port of a dialect, OSError for the service's own port."""
        for name, dialect in dialects.items():
            port: int = dialect.options.port
            with blamed_on(f"protocols.{name}", port):
                if isinstance(dialect, HttpDialect):
                    application, allows = site_web.mount(dialect)
                    if port:
                        await self._serve(application, _NoFastPath(), port, allows)
                elif isinstance(dialect, SocketDialect):
                    await self._listen(dialect, port)
        runner = await self._serve(site_web.application(), site_web, self._settings.port, unix=unix)
        return url_of(runner.addresses[0], has_tls=self._tls is not None)

    async def _serve(
        self,
        application: web.Application,
        answerer: Answerer,
        port: int,
        allows: Callable[[object], bool] | None = None,
        unix: socket.socket | None = None,
    ) -> Runner:
        runner = Runner(
            *(application, answerer, self._limits, self._guard, allows), tls=self._tls, grace_s=self._settings.grace_s
        )
        self._runners.append(runner)
        await runner.open(self._settings.host, port, shared=self._shared, unix=unix)
        return runner

    def _renew(self) -> None:
        """Close open connections: their clients were let in by the previous authorities."""
        for runner in self._runners:
            task = asyncio.create_task(runner.renew())
            self._renewals.add(task)
            task.add_done_callback(self._renewals.discard)

    async def _listen(self, dialect: SocketDialect[Any], port: int) -> None:
        """Listen on a TCP port, and on the UDP port if the dialect has that side."""
        loop, host = asyncio.get_running_loop(), self._settings.host
        self._servers.append(
            await loop.create_server(
                dialect.connection, host or None, port, backlog=BACKLOG, reuse_address=True, reuse_port=self._shared
            )
        )
        if not getattr(dialect.options, "udp", False):
            return

        def datagrams() -> asyncio.DatagramProtocol:
            side = dialect.datagrams()
            assert side, "a dialect with the setting `udp` has a UDP side"
            return side

        for each in await datagram_sockets(host, port, shared=self._shared):
            transport, _ = await loop.create_datagram_endpoint(datagrams, sock=each)
            self._datagrams.append(transport)

    async def close(self, site_web: Web, dialects: Iterable[Dialect[Any]], waiting: Waiting) -> None:
        """Accept no more connections and requests, answer the waiting pops, and let the other requests end."""
        site_web.closing = True
        for runner in self._runners:
            runner.stop()
        for server in self._servers:
            server.close()
        for dialect in dialects:
            dialect.drain()
        waiting.close()
        sockets = [dialect for dialect in dialects if isinstance(dialect, SocketDialect)]
        ends = [runner.close() for runner in self._runners]
        ends += [dialect.close(self._settings.grace_s) for dialect in sockets]
        for failure in await asyncio.gather(*ends, return_exceptions=True):
            if failure is not None:
                log.error("port.failed", exc_info=failure)
        for transport in self._datagrams:
            transport.close()


class _NoFastPath(Answerer):
    """Leaves all requests to aiohttp, whose answers close their connections when the service stops."""

    closing = False
    most_bytes = -1

    def begin(self, data: bytes, head: Head, connection: SimpleClient) -> None:
        raise NotImplementedError
