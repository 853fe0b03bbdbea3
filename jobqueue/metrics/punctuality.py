"""Whether this process's timers keep up, for whoever does heavy work in the background and has to give way."""

from __future__ import annotations

from buckets import Meter

_LATE_US = 25_000


class Punctuality(Meter):
    """Counts the jobs that timers made ready, and those of them that came late."""

    def __init__(self) -> None:
        self._jobs = self._late = 0

    def promoted(self, topic: str, late_us: int, jobs: int) -> None:
        self._jobs += jobs
        if late_us > _LATE_US:
            self._late += jobs

    def is_late(self) -> bool:
        """Whether over one in a hundred came later than 25 ms, since the last call."""
        jobs, late = self._jobs, self._late
        self._jobs = self._late = 0
        return late * 100 > jobs
