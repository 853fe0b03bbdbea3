"""The port that workers share: taken before there is a worker, so that nobody else can share it.

SO_REUSEPORT lets the workers listen side by side, and would let another service of the same user join them unseen. So
the supervisor first takes the port for itself alone, and then keeps it by sockets that accept nothing: the number is
thus known to all where any free one will do, and stays ours while no worker lives.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Any

_HANDOVER_S = 0.5  # for the workers of a supervisor that was killed: they end a moment after it
_LOOK_S = 0.02


@contextlib.asynccontextmanager
async def held(host: str, port: int) -> AsyncIterator[tuple[Any, ...]]:
    """Hold the port at all addresses of the host; 0: any free one. Gives the first address, with the port's number.

    Raises OSError when it is another's, or the host has no such address.
    """
    end = asyncio.get_running_loop().time() + _HANDOVER_S
    while True:
        try:
            sockets, address = await _take(host, port)
            break
        except OSError as error:
            if error.errno != errno.EADDRINUSE or asyncio.get_running_loop().time() > end:
                raise
        await asyncio.sleep(_LOOK_S)
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
    """A socket that holds an address; None when this machine knows no such family (IPv6).

    What is bound with SO_REUSEADDR gets past the connections that the last service left, and may be bound by many at
    once; but only one of them may listen, and to listen is how we learn that we are that one. Then the options change,
    so that the socket tolerates no other that has not SO_REUSEPORT, and it stops to listen.
    """
    try:
        holder = socket.socket(family, socket.SOCK_STREAM)
    except OSError:
        return None
    try:
        if family == socket.AF_INET6:
            holder.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if address[1] == 0:  # a number that the system chose at this bind would be given free by the shutdown
            address = _free(family, address)
        holder.bind(address)
        holder.listen()
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.shutdown(socket.SHUT_RDWR)
    except OSError as error:
        holder.close()
        words = str(error.strerror).lower()
        raise OSError(error.errno, f"error while attempting to bind on address {address!r}: {words}") from None
    return holder


def _free(family: int, address: tuple[Any, ...]) -> tuple[Any, ...]:
    """The address with the number of a port that is free now."""
    with socket.socket(family) as probe:
        probe.bind(address)
        free: tuple[Any, ...] = probe.getsockname()
        return free
