"""The address that a socket listens at, as people and clients write it."""

from __future__ import annotations

from typing import Any


def url_of(address: tuple[Any, ...]) -> str:
    """The URL of what listens at a socket's address."""
    host, port = address[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
