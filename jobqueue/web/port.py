"""What the connections of a port share, and how they end together; and the addresses that a service listens on: their
URL, checks that they are free, and UDP sockets.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from aiohttp import web

from buckets.errors import Unfit
from jobqueue.access.authentication import Visitor
from jobqueue.access.caller import Caller, Cancellable
from jobqueue.access.connections import ConnectionLimits
from jobqueue.access.grants import Grant
from jobqueue.access.modes import are_loopback
from jobqueue.access.tls import Tls
from jobqueue.protocols import Reply
from jobqueue.settings import Settings
from jobqueue.web.fast_path import Head


class Client(Protocol):
    """Where the answer to a request goes."""

    async def send(self, reply: Reply, request_id: str, *, has_jobs: bool) -> None:
        """Write the answer to the request, and its id. Raises ConnectionError when the client is gone. `has_jobs`: True
        if the answer hands out jobs; it is then not sent to a client that has hung up unnoticed."""


class SimpleClient(Client, Caller, Visitor, Protocol):
    """The client of a simple request."""

    grant: Grant
    """What the request in flight may do; set when the request is let in."""
    trace: str
    """The context of the request in flight: see `TRACE`."""


class Answerer(Protocol):
    """Answers the simple requests."""

    closing: bool
    """True if it accepts no more requests; the answers to those in flight are then the last on their connections."""
    most_bytes: int
    """A request with a longer body is not simple."""

    def begin(self, data: bytes, head: Head, connection: SimpleClient) -> Cancellable | None:
        """Begin to answer a request with this body and head; it is never answered within this call. Returns the
        request, to be cancelled when the client is gone, or None if a task that was begun with `complete` answers
        it."""


class Ending(Protocol):
    """A connection, as the port sees it when it closes."""

    def end(self) -> None:
        """Accept no more requests: close now, or after the answer to the request in flight."""

    def abort(self) -> None:
        """Close now, and cancel the request in flight."""


class Port:
    """What the connections of a port share.

    `handler` makes aiohttp's handler of a connection. `allows`: says whether the client with an address may connect;
    None allows all. `idle_s`: how long a connection is kept without a request. `tls`: the TLS of its connections, or
    None.
    """

    def __init__(
        self,
        answerer: Answerer,
        limits: ConnectionLimits,
        handler: Callable[[], web.RequestHandler],
        allows: Callable[[object], bool] | None,
        idle_s: float,
        tls: Tls | None = None,
    ) -> None:
        self.answerer = answerer
        self.limits = limits
        self.handler = handler
        self.allows = allows
        self.idle_s = idle_s
        self.tls = tls
        self.loop = asyncio.get_running_loop()
        self.addresses: list[tuple[Any, ...]] = []
        """The addresses that it listens on; empty for a Unix socket."""
        self._endings: list[set[Ending]] = []
        self._ended = asyncio.Event()

    @property
    def is_on_loopback(self) -> bool:
        """Whether it listens on addresses that only this machine reaches, and on nothing else."""
        return bool(self.addresses) and are_loopback(address[0] for address in self.addresses)

    async def end(self, connections: Iterable[Ending], grace_s: float) -> None:
        """Let the requests in flight end within `grace_s`, then cancel those left; close all the connections."""
        ending = set(connections)
        self._endings.append(ending)
        for each in list(ending):
            each.end()
        if not await self._have_ended(ending, grace_s):
            for each in list(ending):
                each.abort()
            await self._have_ended(ending, grace_s)
        self._endings.remove(ending)

    async def _have_ended(self, ending: set[Ending], within_s: float) -> bool:
        try:
            async with asyncio.timeout(within_s):
                while ending:
                    self._ended.clear()
                    await self._ended.wait()
        except TimeoutError:
            return False
        return True

    def leave(self, connection: Ending) -> None:
        """A connection is closed, and none of its requests is in flight."""
        for ending in self._endings:
            ending.discard(connection)
        self._ended.set()


_HANDOVER_S = 0.5  # for the workers of a supervisor that was killed, which end a moment after it
_LOOK_S = 0.02


def url_of(address: tuple[Any, ...], *, has_tls: bool = False) -> str:
    """The URL that reaches the address of a listening socket."""
    host, port = address[:2]
    scheme = "https" if has_tls else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


async def check_free(host: str, port: int) -> None:
    """Raises OSError if nothing can listen there now: another program has the port, or the host does not have the
    address. A port that is in use is checked again for a moment, because the workers of a killed service may still have
    it."""
    loop = asyncio.get_running_loop()
    end = loop.time() + _HANDOVER_S
    while True:
        try:
            server = await loop.create_server(asyncio.Protocol, host, port, reuse_address=True, start_serving=False)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or loop.time() > end:
                raise
        else:
            server.close()
            return
        await asyncio.sleep(_LOOK_S)


def is_in_use(port: int) -> str:
    """The end of the sentence about a port that another program has."""
    return f"is in use; by whom: ss -tulnp 'sport = :{port}'"


@contextlib.contextmanager
def blamed_on(part: str, port: int) -> Iterator[None]:
    """Turns an OSError about the port of a part of the service into an Unfit that names both."""
    try:
        yield
    except OSError as error:
        why = is_in_use(port) if error.errno == errno.EADDRINUSE else f"cannot be opened: {error.strerror or error}"
        raise Unfit(f"the port {port} of {part} {why}") from None


async def check_datagrams_free(settings: Settings) -> None:
    """Raises Unfit when a UDP port of a dialect is not free."""
    for name, options in settings.protocols.open():
        if getattr(options, "udp", False):
            with blamed_on(f"protocols.{name}", options.port):
                for each in await datagram_sockets(settings.host, options.port, shared=False):
                    each.close()


async def datagram_sockets(host: str, port: int, *, shared: bool) -> list[socket.socket]:
    """A UDP socket on each address of the host. `shared`: True if other processes use the port, too."""
    found = await asyncio.get_running_loop().getaddrinfo(
        host or None, port, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE
    )
    with contextlib.ExitStack() as bound:
        sockets = [
            bound.enter_context(_datagram_socket(family, address, shared=shared))
            for family, *_, address in dict.fromkeys(found)
            if family == socket.AF_INET or socket.has_dualstack_ipv6()
        ]
        bound.pop_all()
        return sockets


def _datagram_socket(family: int, address: tuple[Any, ...], *, shared: bool) -> socket.socket:
    made = socket.socket(family, socket.SOCK_DGRAM)
    try:
        made.setblocking(False)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if shared:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        made.bind(address)
    except OSError:
        made.close()
        raise
    return made
