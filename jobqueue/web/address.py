"""The addresses that a service listens on: its URL, whether they are free, and the sockets of UDP."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Iterator
from typing import Any

from buckets.errors import Unfit
from jobqueue.settings import Settings

_HANDOVER_S = 0.5  # for the workers of a supervisor that was killed, which end a moment after it
_LOOK_S = 0.02


def url_of(address: tuple[Any, ...], *, has_tls: bool = False) -> str:
    """The URL that reaches the address of a listening socket."""
    host, port = address[:2]
    scheme = "https" if has_tls else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


async def check_free(host: str, port: int) -> None:
    """Raises OSError when nothing can listen there now: another program has the port, or the host no such address. A
    port that is in use is looked at again for a moment: a service that was killed may leave it to its processes."""
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
    """A UDP socket on each address of the host. `shared`: with other processes."""
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
