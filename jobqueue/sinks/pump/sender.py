"""Sends the message of a job, tells how that went, and says what becomes of the job."""

from __future__ import annotations

import time
import traceback

import structlog
from jobqueue_client import Bury, Job, Retry

from jobqueue.sinks import Common, Down, Poison, Refused
from jobqueue.sinks.pump.figures import Figures
from jobqueue.sinks.pump.messages import Messages
from jobqueue.sinks.pump.way import Way

log = structlog.get_logger()


class Sender:
    """One sink's."""

    def __init__(self, name: str, settings: Common, way: Way, figures: Figures) -> None:
        self._name, self._way, self._figures = name, way, figures
        self._messages = Messages(name, settings)

    async def send(self, job: Job) -> None:
        """Return once the broker has confirmed the message. Raises Bury; Retry, which counts no try where the broker
        is down."""
        self._figures.in_flight.labels(self._name).inc()
        began = time.monotonic()
        try:
            await self._way.send(self._messages.of(job))
        except Poison as poison:
            raise self._buried(job, str(poison)) from None
        except Refused as refused:
            raise self._released(job, str(refused), refused.after_s) from None
        except Down as down:
            self._count("returned")
            self._tell_if_lost(job, str(down))
            raise Retry(0, attempt=False, reason=f"sink {self._name}: {down}") from None
        except Exception as error:
            # Without its message and values: they may hold a header or a body.
            frames = traceback.format_tb(error.__traceback__)
            log.error("sink.broke", sink=self._name, reason=type(error).__name__, trace=frames)
            raise self._released(job, f"a defect of the sink: {type(error).__name__}") from None
        finally:
            self._figures.in_flight.labels(self._name).dec()
        self._count("confirmed")
        self._figures.confirm_s.labels(self._name).observe(time.monotonic() - began)
        self._figures.due_to_confirmed_s.labels(self._name).observe(max(0.0, time.time() - job.due))

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

    def _tell_if_lost(self, job: Job, reason: str) -> None:
        if not job.ttr:  # its pop has finished it
            log.warning("sink.dropped", sink=self._name, topic=job.topic, id=job.id, reason=reason)

    def _count(self, outcome: str) -> None:
        self._figures.jobs.labels(self._name, outcome).inc()
