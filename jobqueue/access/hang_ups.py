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


def has_hung_up(transport: asyncio.BaseTransport) -> bool:
    """Whether the client of an open connection has closed its end."""
    poll = select.poll()
    poll.register(transport.get_extra_info("socket").fileno(), _HUNG_UP)
    return bool(poll.poll(0))
