"""How far a task is, told while it runs."""

from __future__ import annotations

import sys
import time

_EVERY_S = 10.0


class Progress:
    """A line on standard error every ten seconds: on the terminal where Spark runs on this machine, else in the
    executor's log. (No task ever has a terminal of its own: Spark stands between.)"""

    def __init__(self, partition: int) -> None:
        self._partition = partition
        self._rows = self._told_rows = 0
        self._told = time.monotonic()

    def add(self, rows: int) -> None:
        """So many more rows are answered."""
        self._rows += rows
        passed = time.monotonic() - self._told
        if passed >= _EVERY_S:
            speed = (self._rows - self._told_rows) / passed
            print(f"jobqueue: task {self._partition}: {self._rows:,} rows, {speed:,.0f} rows/s", file=sys.stderr)
            sys.stderr.flush()
            self._told, self._told_rows = time.monotonic(), self._rows
