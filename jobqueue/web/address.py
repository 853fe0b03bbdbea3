"""The address that a service listens on: its URL, and whether it is free."""

from __future__ import annotations

import asyncio
from typing import Any


def url_of(address: tuple[Any, ...]) -> str:
    """The URL that reaches the address of a listening socket."""
    host, port = address[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def check_free(host: str, port: int) -> None:
    """Raises OSError when nothing can listen there now: another program has the port, or the host no such address."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(asyncio.Protocol, host, port, reuse_address=True, start_serving=False)
    server.close()
