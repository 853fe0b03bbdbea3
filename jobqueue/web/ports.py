"""The ports of a process: that of the service, and those of the dialects that have one of their own.

They close together: first none takes connections or requests any more, then what is in flight has `grace_s` to end.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import structlog
from aiohttp import web

from buckets import Waiting
from jobqueue.access.connections import ConnectionLimits
from jobqueue.access.tls import Tls
from jobqueue.protocols import Dialect, HttpDialect, SocketDialect
from jobqueue.settings import Settings
from jobqueue.web.address import blamed_on, datagram_sockets, url_of
from jobqueue.web.fast_path import Head
from jobqueue.web.guard import Guard
from jobqueue.web.port import Answerer, SimpleClient
from jobqueue.web.runner import BACKLOG, Runner
from jobqueue.web.site import Web

log = structlog.get_logger()


class Ports:
    """The ports of one process. `shared`: other processes listen beside it; `tls`: what they speak over HTTP."""

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
        """Listen; returns the URL of the service. `unix`: a socket beside its port. Raises Unfit for the port of a
        dialect, OSError for its own."""
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
        """End the connections of clients whom authorities of before let in."""
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
        """Take no more connections and requests, answer the pops that wait, and let the rest end."""
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
