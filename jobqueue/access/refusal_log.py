"""The log of refused requests: a client that is refused a thousand times a second gets one line in it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import structlog

log = structlog.get_logger()

_EVERY_S = 1.0
_MOST = 1000  # addresses that are remembered; further ones have no lines in that second


class RefusalLog:
    """Logs `access.refused` at most once a second and address. `clock`: seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lines: dict[str, tuple[float, int]] = {}  # by address: when it had a line, and refusals since then
        self._cleared = clock()

    def note(self, verdict: str, address: str, **fields: Any) -> None:
        """A request from an IP address was refused. `verdict`: its label in `jobqueue_access_total`. A line says in
        `more` how many refusals before it had none."""
        now = self._clock()
        last, more = self._lines.get(address, (now - _EVERY_S, 0))
        if now - last < _EVERY_S:
            self._lines[address] = last, more + 1
        elif self._has_room(now) or address in self._lines:
            self._lines[address] = now, 0
            log.warning(
                "access.refused", verdict=verdict, address=address, **fields, **({"more": more} if more else {})
            )

    def _has_room(self, now: float) -> bool:
        if len(self._lines) >= _MOST and now - self._cleared >= _EVERY_S:
            self._cleared = now
            self._lines = {address: line for address, line in self._lines.items() if now - line[0] < _EVERY_S}
        return len(self._lines) < _MOST
