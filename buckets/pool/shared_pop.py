"""Like pops of concurrent callers, which the same scripts serve in their order.

One script is nearly always enough. It stops early where bodies are large or stale entries stand in the way; then
another one goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from buckets.job import Job
from buckets.pool.batch import Done, tell
from buckets.pool.limits import Closed
from buckets.pool.pop_search import Ask, Popped, turns
from buckets.scripts import Value


class SharedPop:
    """Pops in progress."""

    __slots__ = ("_jobs", "_last", "_pops", "_room", "_want", "ask")

    def __init__(self, pops: Sequence[tuple[Ask, int, Done]]) -> None:
        """`pops`: what each asks for, how many jobs, and who takes its outcome. Several are for one job each."""
        self.ask = pops[0][0]
        """What they ask for, all but the worker."""
        self._pops = pops
        self._want = sum([count for _, count, _ in pops])
        self._room = self.ask.room * len(pops)
        self._jobs: list[Job] = []
        self._last = Popped()

    def arguments(self, bucket: int) -> dict[str, Value]:
        """Those of the next script."""
        served = len(self._jobs)
        return {
            "bucket": bucket,
            "want": self._want - served,
            "room": max(self._room, 0),
            "always": 0 if served else 1,
            "ttr": self.ask.ttr,
            "workers": turns([(count, ask.worker) for ask, count, _ in self._pops], served),
        }

    def take(self, popped: Popped, cut_short: bool) -> bool:
        """The answer of a script, and whether it stopped early. Returns whether another one is to go on."""
        self._last, jobs = popped, popped.jobs
        self._jobs += jobs
        if not cut_short:
            return False
        self._room -= sum([len(job.raw) for job in jobs])
        return len(self._jobs) < self._want and (self._room > 0 or not self._jobs)

    @property
    def limited(self) -> tuple[Closed, ...]:
        """The topics whose limits keep ready jobs back, as the last script found them."""
        return self._last.limited

    def settle(self) -> None:
        """Hand the jobs out."""
        pops, jobs, last = self._pops, self._jobs, self._last
        shared = (last.left, last.opens_us, last.ask_why, last.limited)
        if len(pops) == 1:
            tell(pops[0][2], Popped(jobs, *shared))
            return
        for at, (_, _, done) in enumerate(pops):
            tell(done, Popped(jobs[at : at + 1], *shared))

    def fail(self, outcome: Any) -> None:
        """No script could go on: those that have jobs get them, the others this outcome."""
        if self._jobs:
            self.settle()
            return
        for _, _, done in self._pops:
            tell(done, outcome)
