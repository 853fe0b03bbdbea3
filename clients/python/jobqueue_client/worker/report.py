"""The report of a worker: its log, its calls of the hooks, and its counts."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from jobqueue_client.job import Job

OnEvent = Callable[[str, dict[str, Any]], object]
OnError = Callable[[BaseException, Job], object]
OnDeath = Callable[[Job, str | None, BaseException | None], object]

_LEVELS = {
    **dict.fromkeys(("job.died",), logging.ERROR),
    **dict.fromkeys(("job.failed", "job.buried", "job.lost", "job.expired", "service.lost"), logging.WARNING),
    **dict.fromkeys(("worker.started", "worker.stopping", "worker.stopped", "worker.heartbeat"), logging.INFO),
    **dict.fromkeys(("service.back", "job.returned"), logging.INFO),
}
_COUNTED = ("finished", "failed", "retried", "buried", "died", "lost")


class Hooks(NamedTuple):
    """The hooks of a worker. They are called in the event loop's thread, and must not block."""

    on_event: OnEvent | None = None
    on_error: OnError | None = None
    on_death: OnDeath | None = None


class Report:
    """The events of one worker; clients/README.md lists their names and fields."""

    def __init__(self, hooks: Hooks | None = None, logger: logging.Logger | None = None) -> None:
        self._hooks = hooks or Hooks()
        self.logger = logger or logging.getLogger("jobqueue_client")
        self._counts: Counter[str] = Counter()

    def event(self, name: str, *, trace: BaseException | None = None, **fields: Any) -> None:
        """Log an event, with a trace if given, and pass it to the hook."""
        self._counts["job.lost" if name == "job.expired" else name] += 1
        level = _LEVELS.get(name, logging.DEBUG)
        if self.logger.isEnabledFor(level):
            words = " ".join(f"{key}={value!r}" for key, value in fields.items() if key != "error")
            self.logger.log(level, "%s %s", name, words, exc_info=trace)
        self._call("on_event", self._hooks.on_event, name, fields)

    def job(self, name: str, job: Job, *, trace: BaseException | None = None, **fields: Any) -> None:
        """An event of a job."""
        self.event(name, trace=trace, topic=job.topic, id=job.id, attempt=job.attempt, **fields)

    def error(self, error: BaseException, job: Job) -> None:
        """A handler raised an error."""
        self._call("on_error", self._hooks.on_error, error, job)

    def death(self, job: Job, reason: str | None, error: BaseException | None) -> None:
        """A job became a dead letter."""
        self._call("on_death", self._hooks.on_death, job, reason, error)

    @property
    def sums(self) -> dict[str, Any]:
        """How many jobs ended how since the start."""
        return {name: self._counts[f"job.{name}"] for name in _COUNTED}

    def defect(self, error: BaseException) -> None:
        """This package has a bug."""
        self.logger.error("a defect of jobqueue_client; the worker continues", exc_info=error)

    def _call(self, name: str, hook: Callable[..., object] | None, *about: Any) -> None:
        if hook is None:
            return
        try:
            hook(*about)
        except Exception:
            self.logger.exception("the hook %s failed", name)
