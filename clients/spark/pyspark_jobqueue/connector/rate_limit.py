"""How fast the rows of a task may go, all its lanes together."""

from __future__ import annotations

import threading
import time

_REQUESTS_A_SECOND = 10


class RateLimit:
    """At most so many rows a second, evenly: a request waits until those before it have had their time."""

    def __init__(self, rows_per_second: int | None) -> None:
        self._rate = rows_per_second
        self._lock = threading.Lock()
        self._next = 0.0

    def at_most(self, rows: int) -> int:
        """How many rows a request may have, of up to `rows`: few enough that there is no burst a second."""
        return rows if self._rate is None else min(rows, max(1, self._rate // _REQUESTS_A_SECOND))

    def wait_s(self, rows: int) -> float:
        """How long to wait before so many rows are sent. They count from now on."""
        if self._rate is None:
            return 0.0
        with self._lock:
            now = time.monotonic()
            begin = max(now, self._next)
            self._next = begin + rows / self._rate
            return begin - now
