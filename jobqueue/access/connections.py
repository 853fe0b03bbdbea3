"""Limits on connections: how many there may be, and how long a client may keep the service waiting.

A client keeps the service waiting while it has connected and sends nothing, while its request is incomplete, and while
it does not read its answer. A loop visits all connections in turn, so that a request needs no timer of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import select
from typing import Protocol, TypeVar

import structlog

log = structlog.get_logger()

_Kind = TypeVar("_Kind")

_ROUND = 10  # visits to a connection within its timeout
_SLOTS = 10  # groups of connections, visited in turn: ten thousand at once would hold up the event loop
_SHORTEST_S = 0.01  # between two groups
_SPARE = 64  # connections beyond the limit, which may only ask for the health of the service
_ROOM = 256 << 20  # bytes of incomplete requests, of all clients together
_OTHER_FILES = 192  # file descriptors for the rest: the spare connections, Redis, logs, metrics


class Visited(Protocol):
    """A connection, as the limits see it."""

    def visit(self, now: float, timeout_s: float) -> None:
        """Disconnect the client if it has kept us waiting for `timeout_s`. `now`: loop time."""


class ConnectionLimits:
    """Enforces the limits on the connections of one process: at most `most`, and a few more that may only ask for its
    health; each may keep us waiting for `timeout_s`."""

    def __init__(self, timeout_s: float, most: int) -> None:
        self.timeout_s = timeout_s
        self._most = most
        self._slots: list[dict[Visited, None]] = [{} for _ in range(_SLOTS)]
        self._slot_of: dict[Visited, int] = {}
        self._joined = itertools.count()
        self._turn = 0
        self._unfinished = 0

    @property
    def is_full(self) -> bool:
        """Whether the limit is reached: a new connection may only ask for the health of the service."""
        return len(self._slot_of) >= self._most

    def join(self, connection: Visited) -> bool:
        """Add a new connection. Returns False if it must be closed."""
        if len(self._slot_of) >= self._most + _SPARE:
            return False
        slot = self._slot_of[connection] = next(self._joined) % _SLOTS
        self._slots[slot][connection] = None
        return True

    def leave(self, connection: Visited) -> None:
        """Forget a connection that is gone."""
        slot = self._slot_of.pop(connection, None)
        if slot is not None:
            del self._slots[slot][connection]

    def joined(self, kind: type[_Kind]) -> list[_Kind]:
        """The connections of a kind."""
        return [each for each in self._slot_of if isinstance(each, kind)]

    def charge(self, size: int) -> bool:
        """Account for `size` more (or fewer) bytes of incomplete requests; returns whether there is room for them."""
        self._unfinished += size
        return self._unfinished <= _ROOM

    async def run(self) -> None:
        """Visit all connections repeatedly."""
        while True:
            await asyncio.sleep(max(self.timeout_s / (_ROUND * _SLOTS), _SHORTEST_S))
            self.tick()

    def tick(self) -> None:
        """Visit the next group of connections."""
        now = asyncio.get_running_loop().time()
        self._turn = (self._turn + 1) % _SLOTS
        for connection in list(self._slots[self._turn]):
            try:
                connection.visit(now, self.timeout_s)
            except Exception:
                log.exception("client.failed")


def most_connections(wanted: int) -> int:
    """How many of the wanted connections this process can have. Raises its limit of open files as far as allowed."""
    most, files = open_files(wanted)
    if most < wanted:
        log.warning("connections.limited", most=most, open_files=files)
    return most


def open_files(wanted: int) -> tuple[int, int]:
    """How many of the wanted connections this process can have, and how many open files, once its limit is raised."""
    try:
        import resource  # noqa: PLC0415 - Windows has none
    except ImportError:
        return wanted, 0
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # macOS reports a hard limit that cannot be set
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return (wanted if soft == resource.RLIM_INFINITY else max(min(wanted, soft - _OTHER_FILES), 1)), soft


_HUNG_UP = select.POLLHUP | getattr(select, "POLLRDHUP", 0)  # POLLRDHUP (Linux): the peer has closed its sending side


def close_if_hung_up(transport: asyncio.BaseTransport | None) -> None:
    """Close a connection whose client has closed its end, as the event loop does once it notices. Until then a write
    would succeed, so this asks the socket. Raises ConnectionResetError if the connection is closed."""
    if transport is not None and not transport.is_closing():
        if not has_hung_up(transport):
            return
        transport.close()
    raise ConnectionResetError("the client is gone")


def is_writable(transport: asyncio.BaseTransport) -> bool:
    """Whether the system accepts more bytes for the client, because it holds at most a few that the client has not
    read."""
    return _is(transport, select.POLLOUT)


def has_hung_up(transport: asyncio.BaseTransport) -> bool:
    """Whether the client of an open connection has closed its end."""
    return _is(transport, _HUNG_UP)


def _is(transport: asyncio.BaseTransport, event: int) -> bool:
    poll = select.poll()
    poll.register(transport.get_extra_info("socket").fileno(), event)
    return bool(poll.poll(0))
