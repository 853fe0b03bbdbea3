"""HTTP as the calls (`calls.py`) see it: a Request goes out, a Reply comes back.

`codec` turns commands into bytes and replies into answers; `connections` carries them for threads and
`async_connections` for asyncio; `words` says why a connection failed. Nothing in here knows a command or repeats a
request.
"""

from __future__ import annotations

from typing import NamedTuple

UNAUTHORIZED = 401
"""The status of a refused token, be it the service or a proxy that refuses it."""


class Request(NamedTuple):
    """A request: the service's URL, the body, and for how many seconds the service may wait before it answers."""

    url: str
    data: bytes
    wait_s: float


class Reply(NamedTuple):
    """An HTTP reply; `retry_after` is the header as received."""

    status: int
    retry_after: str | None
    data: bytes


def command_url(url: str) -> str:
    """Where the service at this URL takes commands."""
    return url.rstrip("/") + "/command"
