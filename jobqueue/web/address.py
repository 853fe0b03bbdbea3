"""The URL of a listening socket."""

from __future__ import annotations

from typing import Any


def url_of(address: tuple[Any, ...]) -> str:
    """The URL that reaches the address of a listening socket."""
    host, port = address[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
