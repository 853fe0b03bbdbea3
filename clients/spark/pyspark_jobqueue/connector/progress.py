"""Progress lines of a running task."""

from __future__ import annotations

import sys
import time

_EVERY_S = 10.0


class Progress:
    """Prints a line to standard error every ten seconds. With a local Spark it reaches the terminal, otherwise the
    executor's log. (It cannot check for a terminal: Spark redirects the output of every task.)"""

    def __init__(self, partition: int) -> None:
        self._partition = partition
        self._rows = self._printed_rows = 0
        self._printed_at = time.monotonic()

    def add(self, rows: int) -> None:
        """Count rows that have been answered."""
        self._rows += rows
        passed = time.monotonic() - self._printed_at
        if passed >= _EVERY_S:
            speed = (self._rows - self._printed_rows) / passed
            print(f"jobqueue: task {self._partition}: {self._rows:,} rows, {speed:,.0f} rows/s", file=sys.stderr)
            sys.stderr.flush()
            self._printed_at, self._printed_rows = time.monotonic(), self._rows
