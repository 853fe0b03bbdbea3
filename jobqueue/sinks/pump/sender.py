"""Sends the message of a job, tells how that went, and says what becomes of the job."""

from __future__ import annotations

import time
import traceback
from collections.abc import Awaitable, Callable

import structlog
from jobqueue_client import Bury, Job, Retry

from jobqueue.sinks import Common, Down, Message, Poison, Refused, WrongDestination, delivered_at
from jobqueue.sinks.pump.figures import Figures
from jobqueue.sinks.pump.messages import Messages

log = structlog.get_logger()


class NotSent(Retry):
    """The broker is down, which is no try of the job. `why`: the reason, without the name of the sink."""

    def __init__(self, sink: str, why: str) -> None:
        super().__init__(0, attempt=False, reason=f"sink {sink}: {why}")
        self.why = why


class TopicWaits(NotSent):
    """The broker works, but not for the messages of this job's topic."""


class Sender:
    """One sink's. `send`: sends a message; raises Poison, Refused, WrongDestination, Down."""

    def __init__(
        self, name: str, settings: Common, send: Callable[[Message], Awaitable[None]], figures: Figures
    ) -> None:
        self._name, self._send, self._figures = name, send, figures
        self._messages = Messages(name, settings)
        self._is_by_topic = settings.is_by_topic

    async def send(self, job: Job) -> None:
        """Return once the broker has confirmed the message. Raises Bury, Retry, NotSent, TopicWaits."""
        self._figures.in_flight.labels(self._name).inc()
        began = time.monotonic()
        try:
            await self._send(self._messages.of(job))
        except Poison as poison:
            raise self._buried(job, str(poison)) from None
        except Refused as refused:
            raise self._released(job, str(refused), refused.after_s) from None
        except WrongDestination as wrong:
            if not self._is_by_topic:
                raise self._released(job, str(wrong)) from None
            raise self._returned(job, TopicWaits, str(wrong)) from None
        except Down as down:
            raise self._returned(job, NotSent, str(down)) from None
        except Exception as error:
            # Without its message and values: they may hold a header or a body.
            frames = traceback.format_tb(error.__traceback__)
            log.error("sink.broke", sink=self._name, reason=type(error).__name__, trace=frames)
            raise self._released(job, f"a defect of the sink: {type(error).__name__}") from None
        finally:
            self._figures.in_flight.labels(self._name).dec()
        self._count("confirmed")
        confirm_s = time.monotonic() - began
        self._figures.confirm_s.labels(self._name).observe(confirm_s)
        self._figures.due_to_confirmed_s.labels(self._name).observe(
            max(0.0, delivered_at(job.lease) - job.due + confirm_s)
        )

    def was_lost(self) -> None:
        """A job was confirmed, and is another worker's, or nobody's, by now."""
        self._count("sent_twice")

    def _buried(self, job: Job, reason: str) -> Bury:
        self._count("poison")
        log.warning("sink.buried", sink=self._name, topic=job.topic, id=job.id, reason=reason)
        return Bury(f"sink {self._name}: {reason}")

    def _released(self, job: Job, reason: str, after_s: float | None = None) -> Retry:
        self._count("refused")
        log.warning("sink.refused", sink=self._name, topic=job.topic, id=job.id, attempt=job.attempt, reason=reason)
        self._tell_if_lost(job, reason)
        return Retry(after_s, reason=f"sink {self._name}: {reason}")

    def _returned(self, job: Job, kind: type[NotSent], reason: str) -> NotSent:
        self._count("returned")
        self._tell_if_lost(job, reason)
        return kind(self._name, reason)

    def _tell_if_lost(self, job: Job, reason: str) -> None:
        if not job.ttr:  # its pop has finished it
            log.warning("sink.dropped", sink=self._name, topic=job.topic, id=job.id, reason=reason)

    def _count(self, outcome: str) -> None:
        self._figures.jobs.labels(self._name, outcome).inc()
