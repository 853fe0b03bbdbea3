"""The contact of a worker with the service: reports when it is lost and when it is back, and when to give up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

from jobqueue_client.errors import JobQueueError, Refused, ShuttingDown, Unauthorized, Unavailable, Unreachable
from jobqueue_client.worker.report import Report

PATIENCE_S = 60.0
"""How long a token may be refused: time to put it in order."""


class Contact:
    """What the loops of one worker hear from the service. Used in its event loop only."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._lost_since: float | None = None
        self._refused_since: float | None = None  # the first UNAUTHORIZED after the last answer of another kind
        self.given_up = asyncio.Event()
        """Set once the token has been refused for too long, without any other answer between."""
        self.refusal: Unauthorized | None = None
        """The refusal after which it was given up."""

    def answered(self) -> None:
        """A request was answered; `service.back` is reported if the service was lost."""
        self._refused_since = None
        if self._lost_since is not None:
            seconds = round(time.monotonic() - self._lost_since, 3)
            self._lost_since = None
            self._report.event("service.back", seconds=seconds)

    def failed(self, error: JobQueueError) -> None:
        """A request failed; `service.lost` is reported once, until a request is answered again."""
        if self._lost_since is None and _is_gone(error):
            self._lost_since = time.monotonic()
            self._report.event("service.lost", reason=str(error))
        if isinstance(error, Unauthorized):
            self._refused(error)
        elif not isinstance(error, Unreachable):  # which says nothing about the token
            self._refused_since = None

    def batch_answered(self, results: Iterable[object]) -> None:
        """The results of a batch: the service is lost if any of them says so."""
        gone = [result for result in results if isinstance(result, JobQueueError) and _is_gone(result)]
        if gone:
            self.failed(gone[0])
        else:
            self.answered()

    def _refused(self, error: Unauthorized) -> None:
        now = time.monotonic()
        if self._refused_since is None:
            self._refused_since = now
        if now - self._refused_since >= PATIENCE_S:
            self.refusal = error
            self.given_up.set()


def _is_gone(error: JobQueueError) -> bool:
    """Whether the service is down, stops, is without its Redis, or lets nobody in with this token.

    Any other refusal comes from a working service.
    """
    return isinstance(error, Unavailable | ShuttingDown | Unauthorized) or not isinstance(error, Refused)
