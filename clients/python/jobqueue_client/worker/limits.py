"""Limits of a worker's life: after a number of jobs, some time, or with too much memory in use, it stops."""

from __future__ import annotations

import asyncio
import resource
import sys
from pathlib import Path

from jobqueue_client.worker.stopping import Stopping

_MEBIBYTE = 1 << 20


class Limits:
    """None is no limit. Memory is looked at between jobs."""

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
        """A handler begins."""
        self._begun += 1

    def end(self) -> None:
        """A handler has ended, and its job with it."""
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
    """The resident memory of this process; where the system does not say, the most that it ever was."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # in bytes on macOS
