"""A batch: jobs of several callers for one script, and what each of them is told."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from buckets.errors import JobQueueError, Unanswered
from buckets.shards import MOST, MOST_BYTES

log = logging.getLogger(__name__)

Done = Callable[[Any], None]
"""Takes the outcome, once: a list with a result or error for each job, for a pop a `Popped`; None: nothing was done, or
it may be repeated, so take the complete way, with the same ids; a JobQueueError: it failed, and was perhaps done."""


class Batch:
    """Jobs of several callers for one script, no id twice."""

    __slots__ = ("ids", "jobs", "parts", "size", "within")

    def __init__(self) -> None:
        self.parts: list[tuple[int, Done]] = []  # for each caller: how many jobs, and who takes their results
        self.jobs: list[Any] = []
        self.ids: set[str] = set()
        self.size = 0  # bytes
        self.within = ""  # the condition of all adds: see `Pool.add`

    def has_room(self, jobs: int, size: int, ids: set[str]) -> bool:
        """Whether more jobs may join."""
        return len(self.jobs) + jobs <= MOST and self.size + size <= MOST_BYTES and self.ids.isdisjoint(ids)

    def join(self, jobs: Sequence[Any], size: int, ids: set[str], done: Done) -> None:
        """Add the jobs of one more caller."""
        self.parts.append((len(jobs), done))
        self.jobs += jobs
        self.ids |= ids
        self.size += size

    def settle(self, results: list[Any]) -> None:
        """Give each caller the results of its jobs."""
        at = 0
        for jobs, done in self.parts:
            tell(done, results[at : at + jobs])
            at += jobs

    def fail(self, outcome: JobQueueError | None) -> None:
        """Give all callers the same outcome."""
        for _, done in self.parts:
            tell(done, outcome)


def tell(done: Done, outcome: Any) -> None:
    """Tell one caller. A bug of one caller must not keep the outcome from the others."""
    try:
        done(outcome)
    except Exception:
        log.exception("answer.failed")


def _may_be_tried_again(error: JobQueueError | None) -> bool:
    """Whether a lost connection is all that stood in the way, and there is time left."""
    return type(error) is Unanswered


def tell_finished(batch: Batch, outcome: Any) -> None:
    """Tell those who finished jobs; `outcome`: a list with the state or error of each job, or one as for `Done`."""
    if isinstance(outcome, list):
        batch.settle(outcome)
    else:
        batch.fail(None if _may_be_tried_again(outcome) else outcome)


def tell_added(batch: Batch, outcome: Any) -> None:
    """As `tell_finished`, for those who added jobs."""
    if isinstance(outcome, list):
        batch.settle(outcome)
        return
    at = 0
    for jobs, done in batch.parts:
        repeatable = all(job.shape.repeatable for job in batch.jobs[at : at + jobs])
        tell(done, None if repeatable and _may_be_tried_again(outcome) else outcome)
        at += jobs
