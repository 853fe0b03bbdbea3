"""The report of a worker: its log, its calls of the hook, its counts, and whether the service can be reached."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from jobqueue_client.errors import JobQueueError, Refused, Unavailable

Hook = Callable[[str, dict[str, Any]], None]

log = logging.getLogger("jobqueue_client")

_WARNINGS = {"job.failed", "job.buried", "job.lost", "service.lost"}
_INFOS = {"worker.started", "worker.stopping", "worker.stopped", "worker.heartbeat", "service.back", "job.returned"}
_COUNTED = ("finished", "failed", "retried", "buried", "lost")


class Report:
    """The events of one worker; clients/README.md lists their names and fields."""

    def __init__(self, hook: Hook | None) -> None:
        self._hook = hook
        self._counts: Counter[str] = Counter()
        self._lost_since: float | None = None

    def event(self, name: str, error: BaseException | None = None, **fields: Any) -> None:
        """Log an event, with the trace of `error` if given, and pass it to the hook."""
        self._counts[name] += 1
        level = logging.WARNING if name in _WARNINGS else logging.INFO if name in _INFOS else logging.DEBUG
        if log.isEnabledFor(level):
            words = " ".join(f"{key}={value!r}" for key, value in fields.items())
            log.log(level, "%s %s", name, words, exc_info=error)
        if self._hook is None:
            return
        try:
            self._hook(name, fields)
        except Exception:
            log.exception("the on_event hook failed for %s", name)

    def heartbeat(self, worker: str, running: int) -> None:
        """Report how many handlers are running, and how many jobs ended how since the start."""
        counts: dict[str, Any] = {name: self._counts[f"job.{name}"] for name in _COUNTED}
        self.event("worker.heartbeat", worker=worker, running=running, **counts)

    def service_failed(self, error: JobQueueError) -> None:
        """A request failed; `service.lost` is reported once, until a request is answered again."""
        if self._lost_since is None and _is_gone(error):
            self._lost_since = time.monotonic()
            self.event("service.lost", reason=str(error))

    def service_answered(self) -> None:
        """A request was answered; `service.back` is reported if the service was lost."""
        if self._lost_since is not None:
            seconds = round(time.monotonic() - self._lost_since, 3)
            self._lost_since = None
            self.event("service.back", seconds=seconds)

    def batch_answered(self, results: Iterable[object]) -> None:
        """The results of a batch: the service is lost if any of them says so."""
        gone = [result for result in results if isinstance(result, JobQueueError) and _is_gone(result)]
        if gone:
            self.service_failed(gone[0])
        else:
            self.service_answered()


def _is_gone(error: JobQueueError) -> bool:
    """Whether the service is down, or up without its Redis. Any other refusal comes from a working service."""
    return isinstance(error, Unavailable) or not isinstance(error, Refused)
