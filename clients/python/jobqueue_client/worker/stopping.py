"""Why a worker stops: a signal, a call of `stop`, or a limit on its jobs, time or memory."""

from __future__ import annotations

import asyncio
import resource
import sys
from pathlib import Path
from typing import Literal

StopReason = Literal["signal", "stop", "max_jobs", "max_time", "memory"]


class Stopping:
    """Whether one run of a worker must stop, and why; used only in the worker's event loop."""

    def __init__(self) -> None:
        self.reason: StopReason | None = None
        self.asked = asyncio.Event()
        self.hurry = asyncio.Event()
        """Set to end the grace period."""

    def ask(self, reason: StopReason) -> None:
        """Ask the worker to stop; the first reason is kept."""
        if self.reason is None:
            self.reason = reason
            self.asked.set()


_MEBIBYTE = 1 << 20


class Limits:
    """The limits of one run of a worker; None for no limit. Memory is checked whenever a job ends."""

    def __init__(
        self, max_jobs: int | None, max_time_s: float | None, memory_mb: float | None, stopping: Stopping
    ) -> None:
        self._max_jobs = sys.maxsize if max_jobs is None else max_jobs
        self._max_time_s = max_time_s
        self._memory_mb = memory_mb
        self._stopping = stopping
        self._begun = 0
        self._ended = 0

    @property
    def left(self) -> int:
        """The number of jobs that may still begin."""
        return self._max_jobs - self._begun

    def begin(self) -> None:
        """Note that a handler begins."""
        self._begun += 1

    def end(self) -> None:
        """Note that a handler and its job have ended; stop the worker at a limit."""
        self._ended += 1
        if self._ended >= self._max_jobs:
            self._stopping.ask("max_jobs")
        elif self._memory_mb is not None and memory_bytes() > self._memory_mb * _MEBIBYTE:
            self._stopping.ask("memory")

    async def watch_time(self) -> None:
        """Stop the worker when its time is over."""
        if self._max_time_s is not None:
            await asyncio.sleep(self._max_time_s)
            self._stopping.ask("max_time")


def memory_bytes() -> int:
    """The resident memory of this process, or its maximum so far where the system does not report the current value."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # in bytes on macOS
