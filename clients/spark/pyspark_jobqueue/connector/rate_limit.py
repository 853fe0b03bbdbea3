"""The rate limit of a task: rows per second over all its requests."""

from __future__ import annotations

import threading
import time

_REQUESTS_A_SECOND = 10


class RateLimit:
    """Lets through a number of rows per second, evenly: each request waits until those before it have had their
    time."""

    def __init__(self, rows_per_second: int | None) -> None:
        self._rate = rows_per_second
        self._lock = threading.Lock()
        self._next = 0.0

    def at_most(self, rows: int) -> int:
        """How many rows (up to `rows`) a request may have: few enough that the rows do not leave in one burst a
        second."""
        return rows if self._rate is None else min(rows, max(1, self._rate // _REQUESTS_A_SECOND))

    def wait_s(self, rows: int) -> float:
        """Seconds to wait before sending this many rows, which count from now on."""
        if self._rate is None:
            return 0.0
        with self._lock:
            now = time.monotonic()
            begin = max(now, self._next)
            self._next = begin + rows / self._rate
            return begin - now
