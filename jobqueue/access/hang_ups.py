"""Hang-ups that the event loop has not read yet."""

from __future__ import annotations

import asyncio
import select

_HUNG_UP = select.POLLHUP | getattr(select, "POLLRDHUP", 0)  # on Linux the second one is the end of what a peer sends


def close_if_hung_up(transport: asyncio.BaseTransport | None) -> None:
    """Close a connection whose client has closed its end, as the event loop does once it reads that. Until then a write
    would succeed, so this asks the socket. Raises ConnectionResetError if the connection is closed."""
    if transport is not None and not transport.is_closing():
        if not has_hung_up(transport):
            return
        transport.close()
    raise ConnectionResetError("the client is gone")


def is_writable(transport: asyncio.BaseTransport) -> bool:
    """Whether the system takes more bytes for the client: it has no more than a few that the client has not taken."""
    return _is(transport, select.POLLOUT)


def has_hung_up(transport: asyncio.BaseTransport) -> bool:
    """Whether the client of an open connection has closed its end."""
    return _is(transport, _HUNG_UP)


def _is(transport: asyncio.BaseTransport, event: int) -> bool:
    poll = select.poll()
    poll.register(transport.get_extra_info("socket").fileno(), event)
    return bool(poll.poll(0))
