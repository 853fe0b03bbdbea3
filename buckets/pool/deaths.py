"""Deaths in the logs: one line per job that became a dead letter, and a sum where there are very many.

The scripts report them to whoever called: the timer, or the worker that gave the job back. If an answer of Redis is
lost, its lines are missing; the counters of a topic are exact.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

log = logging.getLogger(__name__)

MOST_A_SECOND = 10
_SECOND = 1.0


class Deaths:
    """The deaths that this process learned of."""

    def __init__(self) -> None:
        self._since = 0.0  # of the second that is counted
        self._lines = 0
        self._rest: Counter[str] = Counter()  # by topic, without a line of their own
        self._ending: asyncio.TimerHandle | None = None

    def report(self, died: Sequence[Sequence[Any]]) -> None:
        """Log jobs that died, each given as id, topic, cause, attempts and its last worker."""
        for job_id, topic, cause, attempts, worker in died:
            if self._has_line():
                fields = {"id": _text(job_id), "topic": _text(topic), "cause": _text(cause), "attempts": attempts}
                log.warning("job.died", extra={**fields, "worker": _text(worker) or None})
            else:
                self._rest[_text(topic)] += 1

    def _has_line(self) -> bool:
        now = time.monotonic()
        if now - self._since >= _SECOND:
            self._since, self._lines = now, 0
        self._lines += 1
        if self._lines > MOST_A_SECOND and self._ending is None:
            self._ending = asyncio.get_running_loop().call_later(_SECOND, self.sum_up)
        return self._lines <= MOST_A_SECOND

    def sum_up(self) -> None:
        """Log how many had no line of their own."""
        if self._ending:
            self._ending.cancel()
            self._ending = None
        if self._rest:
            log.warning("jobs.died", extra={"jobs": self._rest.total(), "topics": dict(self._rest.most_common(20))})
            self._rest.clear()


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
