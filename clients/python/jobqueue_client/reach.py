"""Whether the service can be reached: told once when it is gone, and once when it is back."""

from __future__ import annotations

import time
from collections.abc import Iterable

from jobqueue_client.errors import JobQueueError, Refused, Unavailable
from jobqueue_client.events import Events


class Reach:
    """What all requests of a worker tell of the service."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._gone_since: float | None = None

    def failed(self, error: JobQueueError) -> None:
        """A request failed."""
        if self._gone_since is None and _is_gone(error):
            self._gone_since = time.monotonic()
            self._events.tell("service.lost", reason=str(error))

    def answered(self) -> None:
        """A request was answered."""
        if self._gone_since is not None:
            seconds = round(time.monotonic() - self._gone_since, 3)
            self._gone_since = None
            self._events.tell("service.back", seconds=seconds)

    def told(self, results: Iterable[object]) -> None:
        """What came of each member of a batch."""
        gone = [result for result in results if isinstance(result, JobQueueError) and _is_gone(result)]
        if gone:
            self.failed(gone[0])
        else:
            self.answered()


def _is_gone(error: JobQueueError) -> bool:
    """Whether there is no service, or one without its Redis. Other refusals come from a service that is there."""
    return isinstance(error, Unavailable) or not isinstance(error, Refused)
