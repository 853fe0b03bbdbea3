"""The port that workers share, held before the first worker starts, so that nobody else can share it.

SO_REUSEPORT lets the workers listen side by side, and would let another service of the same user join them unnoticed.
So the supervisor first takes the port exclusively, then holds it with sockets that accept nothing. That also settles
the number when any free port will do, and keeps the port while no worker is alive.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Any


@contextlib.asynccontextmanager
async def held(host: str, port: int) -> AsyncIterator[tuple[Any, ...]]:
    """Hold the port on all addresses of the host; 0: any free port. Yields the first address, with the port's number.

    Raises OSError when another program has the port, or the host has no such address.
    """
    sockets, address = await _take(host, port)
    with sockets:
        yield address


async def _take(host: str, port: int) -> tuple[ExitStack, tuple[Any, ...]]:
    found = await asyncio.get_running_loop().getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    with ExitStack() as sockets:
        first: tuple[Any, ...] = ()
        for family, *_, address in dict.fromkeys(found):
            number = first[1] if first else port
            holder = _holder(family, (address[0], number, *address[2:]))
            if holder:
                sockets.enter_context(holder)
                first = first or holder.getsockname()
        return sockets.pop_all(), first


def _holder(family: int, address: tuple[Any, ...]) -> socket.socket | None:
    """A socket that holds an address; None when this machine does not support the family (IPv6).

    With SO_REUSEADDR, binding succeeds beside the connections that the last service left, but also beside other sockets
    with that option. Only one of them may listen, so listening proves that the port is ours. Then the options change:
    from now on the socket tolerates only others with SO_REUSEPORT, and it stops listening.
    """
    try:
        holder = socket.socket(family, socket.SOCK_STREAM)
    except OSError:
        return None
    try:
        if family == socket.AF_INET6:
            holder.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if address[1] == 0:  # the shutdown would release a number that the kernel chose at this bind
            address = _free(family, address)
        holder.bind(address)
        holder.listen()
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.shutdown(socket.SHUT_RDWR)
    except OSError as error:
        holder.close()
        reason = str(error.strerror).lower()
        raise OSError(error.errno, f"error while attempting to bind on address {address!r}: {reason}") from None
    return holder


def _free(family: int, address: tuple[Any, ...]) -> tuple[Any, ...]:
    """The address, with the number of a port that is free now."""
    with socket.socket(family) as probe:
        probe.bind(address)
        free: tuple[Any, ...] = probe.getsockname()
        return free
