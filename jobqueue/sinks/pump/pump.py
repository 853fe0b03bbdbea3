"""The pump of a sink whose messages may overtake each other: a worker of the Python client."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Set
from typing import Any, NamedTuple

import structlog
from jobqueue_client import Job, JobQueueError, Worker
from jobqueue_client.access.options import AccessFields
from jobqueue_client.worker.report import OnEvent

from jobqueue.sinks import Common
from jobqueue.sinks.pump.file import kind_of
from jobqueue.sinks.pump.messages import NotSent, Sender, TopicWaits
from jobqueue.sinks.pump.notices import Figures, Notices, loads
from jobqueue.sinks.pump.way import Pauses, Trial, Way

log = structlog.get_logger()

_A_LIFE_S = 10 * 365 * 86_400.0
_AFTER_S = 5.0  # to settle a job after the wait for its confirmation
_WARNINGS = ("job.died", "service.lost")
_INFOS = ("service.back", "worker.started", "worker.stopped")
_ENDS = ("job.finished", "job.lost", "job.expired")


class _Trying(NamedTuple):
    """A trial under way."""

    worker: Worker
    trial: Trial


class Pump:
    """One sink at work."""

    def __init__(self, name: str, settings: Common, url: str, access: AccessFields, figures: Figures) -> None:
        self.name, self.settings = name, settings
        self._notices = Notices(name, settings, url, access)
        self._way = Way(name, settings, figures, lambda _: self._adjust(), self._pause_all, self._notices)
        self._url, self._access, self._figures = url, access, figures
        self._sender = Sender(name, settings, self._way.send, figures)
        self._bytes = 0
        self._confirmed: set[tuple[str, int]] = set()
        self._pauses = Pauses(name, figures, self._notices)
        self._retrials: dict[str, asyncio.Task[None]] = {}
        """By the topics that are paused."""
        self._trying: dict[str, _Trying] = {}
        self._is_clean, self._stopping = True, False
        self._woken = asyncio.Event()
        self._worker = self._new_worker(settings.most_in_flight, self._told)
        self._worker.pause()
        for topic in settings.topics:
            self._worker.job(topic)(self._handle)
        figures.show(name)

    async def run(self) -> bool:
        """Work until stopped. Whether everything had been settled. Raises Refused of the client."""
        sink = kind_of(self.settings).Sink(self.settings, self._way)
        keeping = asyncio.create_task(self._way.run(sink), name=f"sink {self.name}")
        telling = asyncio.create_task(self._notices.run())
        try:
            is_clean = await self._worker.serve()
            await asyncio.gather(*self._retrials.values())
            return is_clean and self._is_clean
        finally:
            loops = [keeping, telling, *self._retrials.values()]
            for loop in loops:
                loop.cancel()
            await asyncio.gather(*loops, return_exceptions=True)

    def stop(self) -> None:
        """Take no more jobs, and end once those in flight are settled."""
        self._stopping = True
        self._wake()
        self._worker.stop()
        self._way.stop()
        for trying in self._trying.values():
            trying.worker.stop()
            if self.settings.confirm_s is None:
                trying.trial.stop()

    def try_again(self) -> None:
        """Try the way to the broker now, if it is down, and the topics that are paused."""
        self._way.try_again()
        self._wake()

    def _new_worker(self, concurrency: int, on_event: OnEvent, max_jobs: int | None = None) -> Worker:
        return Worker(
            self._url,
            concurrency=concurrency,
            keep_alive_s=_A_LIFE_S,
            grace_s=self.settings.timeout_s + _AFTER_S,
            heartbeat_s=0,
            max_jobs=max_jobs,
            on_event=on_event,
            loads=loads,
            **self._access,
        )

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
        except TopicWaits as waits:
            self._pause(job.topic, waits.why)
            raise
        finally:
            self._hold(-size)
        self._confirmed.add((job.id, job.attempt))

    def _pause_all(self, topics: Set[str], reason: str) -> None:
        for topic in topics:
            self._pause(topic, reason)

    def _pause(self, topic: str, reason: str) -> None:
        if topic not in self._retrials and not self._stopping:
            self._worker.pause(topic)
            self._retrials[topic] = asyncio.create_task(self._retry(topic, reason), name=f"trials {self.name} {topic}")

    async def _retry(self, topic: str, reason: str) -> None:
        """Try a paused topic with a job now and then, and resume it once its destination has judged one."""
        while reason:
            pause_s = self._pauses.failed(topic, reason)
            if not self._stopping:
                await self._wait(pause_s)
            if self._stopping:
                return
            try:
                reason = await self._tried(topic)
            except JobQueueError as error:
                reason = str(error)
        if not self._stopping:
            self._pauses.works(topic)
            del self._retrials[topic]
            self._worker.resume(topic)

    async def _tried(self, topic: str) -> str:
        """Why the next job of a topic could not be sent; empty if it could, or the sink stops. Raises Refused of the
        client."""
        reason, trial = "", Trial(self.settings)
        sender = Sender(self.name, self.settings, trial.send, self._figures)

        async def handle(job: Job) -> None:
            nonlocal reason
            try:
                await sender.send(job)
            except NotSent as error:
                reason = error.why
                raise
            self._confirmed.add((job.id, job.attempt))

        worker = self._new_worker(1, self._told_of_trial, max_jobs=1)
        worker.job(topic)(handle)
        self._trying[topic] = _Trying(worker, trial)
        try:
            self._is_clean &= await worker.serve()
        finally:
            del self._trying[topic]
        return reason

    async def _wait(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()

    def _wake(self) -> None:
        """End all waits."""
        self._woken.set()
        self._woken = asyncio.Event()

    def _hold(self, size: int) -> None:
        self._bytes += size
        self._adjust()

    def _told_of_trial(self, name: str, fields: dict[str, Any]) -> None:
        """An event of the worker of a trial, whose life is told by those of its topic."""
        if name.startswith("job."):
            self._told(name, fields)

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
