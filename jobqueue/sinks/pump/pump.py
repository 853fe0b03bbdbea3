"""The pump of a sink whose messages may overtake each other: a worker of the Python client."""

from __future__ import annotations

import asyncio
from typing import Any

import structlog
from jobqueue_client import Job, Worker
from jobqueue_client.access.options import AccessFields

from jobqueue.sinks import Common
from jobqueue.sinks.pump.answers import loads
from jobqueue.sinks.pump.figures import Figures
from jobqueue.sinks.pump.file import kind_of
from jobqueue.sinks.pump.sender import Sender
from jobqueue.sinks.pump.way import Way

log = structlog.get_logger()

_A_LIFE_S = 10 * 365 * 86_400.0
_AFTER_S = 5.0  # to settle a job after the wait for its confirmation
_WARNINGS = ("job.died", "service.lost")
_INFOS = ("service.back", "worker.started", "worker.stopped")
_ENDS = ("job.finished", "job.lost", "job.expired")


class Pump:
    """One sink at work."""

    def __init__(self, name: str, settings: Common, url: str, access: AccessFields, figures: Figures) -> None:
        self.name, self.settings = name, settings
        self._way = Way(name, settings, figures, lambda _: self._adjust())
        self._sender = Sender(name, settings, self._way, figures)
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
        self._way.stop()

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
            await self._sender.send(job)
        finally:
            self._hold(-size)
        self._confirmed.add((job.id, job.attempt))

    def _hold(self, size: int) -> None:
        self._bytes += size
        self._adjust()

    def _told(self, name: str, fields: dict[str, Any]) -> None:
        """An event of the worker."""
        if name in _ENDS and (sent := (fields["id"], fields["attempt"])) in self._confirmed:
            self._confirmed.remove(sent)
            if name != "job.finished":
                self._sender.was_lost()
        if name in _WARNINGS or name in _INFOS:
            level = log.warning if name in _WARNINGS else log.info
            level(
                name, sink=self.name, **{key: value for key, value in fields.items() if key not in ("error", "trace")}
            )
