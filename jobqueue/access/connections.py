"""How many clients may be connected, and how long one may keep us waiting.

A client keeps us waiting when it has connected and says nothing, when its request is not complete, and when it does not
take its answer. One visit after the other goes round all connections, so that a request costs no timer of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from typing import Protocol

import structlog

log = structlog.get_logger()

_ROUND = 10  # visits of a connection in the time that it has
_SLOTS = 10  # parts of the connections, visited one after the other: ten thousand at once would hold up all others
_SHORTEST_S = 0.01  # between two visits
_SPARE = 64  # connections beyond the limit that may still ask for the service's health
_ROOM = 256 << 20  # bytes of requests that are not complete, of all clients together
_OTHER_FILES = 192  # file descriptors for all else: those, Redis, logs, the files of the metrics


class Client(Protocol):
    """A connection, as it is visited."""

    def visit(self, now: float, timeout_s: float) -> None:
        """Drop the client if it has kept us waiting for so long. `now`: loop time."""


class Limits:
    """The connections of one process: at most `most`, and a few more that may ask for its health."""

    def __init__(self, timeout_s: float, most: int) -> None:
        self.timeout_s = timeout_s
        self._most = most
        self._slots: list[dict[Client, None]] = [{} for _ in range(_SLOTS)]
        self._places: dict[Client, int] = {}
        self._joined = itertools.count()
        self._turn = 0
        self._unfinished = 0

    @property
    def is_full(self) -> bool:
        """Whether a new connection is one too many: it may ask how we are, and nothing else."""
        return len(self._places) >= self._most

    def join(self, client: Client) -> bool:
        """A connection is there; whether it may stay."""
        if len(self._places) >= self._most + _SPARE:
            return False
        place = self._places[client] = next(self._joined) % _SLOTS
        self._slots[place][client] = None
        return True

    def leave(self, client: Client) -> None:
        """A connection is gone."""
        place = self._places.pop(client, None)
        if place is not None:
            del self._slots[place][client]

    def charge(self, size: int) -> bool:
        """So many bytes more (or less) are kept of requests that are not complete; whether there is room for them."""
        self._unfinished += size
        return self._unfinished <= _ROOM

    async def run(self) -> None:
        """Visit all connections for ever."""
        while True:
            await asyncio.sleep(max(self.timeout_s / (_ROUND * _SLOTS), _SHORTEST_S))
            self.tick()

    def tick(self) -> None:
        """Visit a part of the connections."""
        now = asyncio.get_running_loop().time()
        self._turn = (self._turn + 1) % _SLOTS
        for client in list(self._slots[self._turn]):
            try:
                client.visit(now, self.timeout_s)
            except Exception:
                log.exception("client.failed")


def most_connections(wanted: int) -> int:
    """As many as are wanted, or as this process can have; from now on it may open as many files as it may choose to."""
    try:
        import resource  # noqa: PLC0415 - not there on Windows
    except ImportError:
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # macOS has a hard limit that nobody may take
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    most = wanted if soft == resource.RLIM_INFINITY else max(min(wanted, soft - _OTHER_FILES), 1)
    if most < wanted:
        log.warning("connections.limited", most=most, open_files=soft)
    return most
