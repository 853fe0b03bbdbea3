"""The report of a worker: its log, its calls of the hooks and its counts.

`Contact` reports when the service is lost and when it is back, and decides when to give up. `survive` logs an
unexpected exception in a loop, so that the loop continues.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any, NamedTuple

from jobqueue_client.errors import JobQueueError, Refused, ShuttingDown, Unauthorized, Unavailable, Unreachable
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
            try:
                self.logger.log(level, "%s %s", name, words, exc_info=trace)
            except Exception:  # from a handler of the log: the job must end all the same
                with suppress(Exception):
                    self.logger.log(level, "%s %s (its trace cannot be logged)", name, words)
        self._call("on_event", self._hooks.on_event, name, fields)

    def job(self, name: str, job: Job, *, trace: BaseException | None = None, **fields: Any) -> None:
        """Report an event of a job, with its trace if it has one."""
        if job.trace_id is not None:
            fields["trace_id"] = job.trace_id
        self.event(name, trace=trace, topic=job.topic, id=job.id, attempt=job.attempt, **fields)

    def error(self, error: BaseException, job: Job) -> None:
        """Report that a handler raised an error."""
        self._call("on_error", self._hooks.on_error, error, job)

    def death(self, job: Job, reason: str | None, error: BaseException | None) -> None:
        """Report that a job became a dead letter."""
        self._call("on_death", self._hooks.on_death, job, reason, error)

    @property
    def sums(self) -> dict[str, Any]:
        """The number of jobs by outcome since the start."""
        return {name: self._counts[f"job.{name}"] for name in _COUNTED}

    def defect(self, error: BaseException) -> None:
        """Log a bug in this package."""
        self.logger.error("a defect of jobqueue_client; the worker continues", exc_info=error)

    def _call(self, name: str, hook: Callable[..., object] | None, *about: Any) -> None:
        if hook is None:
            return
        try:
            hook(*about)
        except Exception:
            self.logger.exception("the hook %s failed", name)


PATIENCE_S = 60.0
"""How long a token may be refused before the worker gives up: time to replace the token."""


class Contact:
    """Whether the loops of one worker get answers from the service. Used only in the worker's event loop."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._lost_since: float | None = None
        self._refused_since: float | None = None  # the first UNAUTHORIZED after the last answer of another kind
        self.given_up = asyncio.Event()
        """Set once the token has been refused for too long, without any other answer in between."""
        self.refusal: Unauthorized | None = None
        """The refusal after which the worker gave up."""

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
        elif not isinstance(error, Unreachable):  # Unreachable says nothing about the token
            self._refused_since = None

    def batch_answered(self, results: Iterable[object]) -> None:
        """Note the results of a batch: the service is lost if any of them shows that."""
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
    """Whether the service is down, is stopping, cannot reach its Redis, or refuses this token.

    Any other refusal comes from a working service.
    """
    return isinstance(error, Unavailable | ShuttingDown | Unauthorized) or not isinstance(error, Refused)


_PAUSE_S = 1.0


async def survive(tick: Callable[[], Awaitable[None]], report: Report) -> None:
    """Run one turn of a loop; an unexpected exception is logged and followed by a pause. Raises Refused."""
    try:
        await tick()
    except Refused:
        raise
    except Exception as error:
        report.defect(error)
        await asyncio.sleep(_PAUSE_S)
