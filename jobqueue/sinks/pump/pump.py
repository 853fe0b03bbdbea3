"""The pump of one sink: takes its jobs, sends them, and settles them by what the broker says."""

from __future__ import annotations

import asyncio
import time
import traceback
from typing import Any

import structlog
from jobqueue_client import Bury, Job, Retry, Worker
from jobqueue_client.access.options import AccessFields

from jobqueue.sinks import Common, Down, Poison, Refused
from jobqueue.sinks.pump.answers import loads
from jobqueue.sinks.pump.figures import Figures
from jobqueue.sinks.pump.file import kind_of
from jobqueue.sinks.pump.messages import Messages
from jobqueue.sinks.pump.way import Way

log = structlog.get_logger()

_A_LIFE_S = 10 * 365 * 86_400.0
_AFTER_S = 5.0  # to settle a job after the wait for its confirmation
_WARNINGS = ("job.died", "service.lost")
_ENDS = ("job.finished", "job.lost", "job.expired")
_INFOS = ("service.back", "worker.started", "worker.stopped")


class Pump:
    """One sink at work."""

    def __init__(self, name: str, settings: Common, url: str, access: AccessFields, figures: Figures) -> None:
        self.name, self.settings = name, settings
        self._figures = figures
        self._messages = Messages(name, settings)
        self._way = Way(name, settings.timeout_s, figures, lambda _: self._adjust())
        self._bytes = 0
        self._confirmed: set[tuple[str, int]] = set()
        self._worker = Worker(
            url,
            concurrency=settings.most_in_flight,
            keep_alive_s=_A_LIFE_S,
            grace_s=settings.timeout_s + _AFTER_S,
            heartbeat_s=0,
            on_event=self._told,
            loads=loads,
            **access,
        )
        self._worker.pause()
        for topic in settings.topics:
            self._worker.job(topic)(self._handle)
        figures.show(name)

    async def run(self) -> bool:
        """Work until stopped. Whether everything had been settled. Raises Refused of the client."""
        sink = kind_of(self.settings).Sink(self.settings, self._way)
        keeping = asyncio.create_task(self._way.run(sink), name=f"sink {self.name}")
        try:
            return await self._worker.serve()
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)

    def stop(self) -> None:
        """Take no more jobs, and end once those in flight are settled."""
        self._worker.stop()

    def try_again(self) -> None:
        """Try the way to the broker now, if it is down."""
        self._way.try_again()

    def _adjust(self) -> None:
        """Take jobs as long as the broker does, and there is room."""
        if self._way.takes and self._bytes < self.settings.in_flight_mb << 20:
            self._worker.resume()
        else:
            self._worker.pause()

    async def _handle(self, job: Job) -> None:
        """Send the message of a job. Raises Retry, Bury."""
        size = len(job.body)
        self._hold(size)
        try:
            await self._send(job)
        finally:
            self._hold(-size)
        self._confirmed.add((job.id, job.attempt))

    def _hold(self, size: int) -> None:
        self._bytes += size
        self._figures.in_flight.labels(self.name).inc(1 if size >= 0 else -1)
        self._adjust()

    async def _send(self, job: Job) -> None:
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
            raise Retry(0, attempt=False, reason=f"sink {self.name}: {down}") from None
        except Exception as error:
            # Without its message and values: they may hold a header or a body.
            frames = traceback.format_tb(error.__traceback__)
            log.error("sink.broke", sink=self.name, reason=type(error).__name__, trace=frames)
            raise self._released(job, f"a defect of the sink: {type(error).__name__}") from None
        self._count("confirmed")
        self._figures.confirm_s.labels(self.name).observe(time.monotonic() - began)
        self._figures.due_to_confirmed_s.labels(self.name).observe(max(0.0, time.time() - job.due))

    def _buried(self, job: Job, reason: str) -> Bury:
        self._count("poison")
        log.warning("sink.buried", sink=self.name, topic=job.topic, id=job.id, reason=reason)
        return Bury(f"sink {self.name}: {reason}")

    def _released(self, job: Job, reason: str, after_s: float | None = None) -> Retry:
        self._count("refused")
        log.warning("sink.refused", sink=self.name, topic=job.topic, id=job.id, attempt=job.attempt, reason=reason)
        self._tell_if_lost(job, reason)
        return Retry(after_s, reason=f"sink {self.name}: {reason}")

    def _tell_if_lost(self, job: Job, reason: str) -> None:
        if not job.ttr:  # its pop has finished it
            log.warning("sink.lost", sink=self.name, topic=job.topic, id=job.id, reason=reason)

    def _count(self, outcome: str) -> None:
        self._figures.jobs.labels(self.name, outcome).inc()

    def _told(self, name: str, fields: dict[str, Any]) -> None:
        """An event of the worker."""
        if name in _ENDS and (sent := (fields["id"], fields["attempt"])) in self._confirmed:
            self._confirmed.remove(sent)
            if name != "job.finished":  # another worker has it by now, or nobody
                self._count("sent_twice")
        if name in _WARNINGS or name in _INFOS:
            level = log.warning if name in _WARNINGS else log.info
            level(
                name, sink=self.name, **{key: value for key, value in fields.items() if key not in ("error", "trace")}
            )
