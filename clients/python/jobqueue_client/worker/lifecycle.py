"""The lifecycle of a worker: builds its parts, runs them, and stops them in order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass

from jobqueue_client.async_client import AsyncClient
from jobqueue_client.options import check_seconds
from jobqueue_client.worker.contact import Contact
from jobqueue_client.worker.handlers import Handlers, Work
from jobqueue_client.worker.lease import Leases
from jobqueue_client.worker.limits import Limits
from jobqueue_client.worker.outbox import Outbox
from jobqueue_client.worker.outbox_sender import OutboxSender
from jobqueue_client.worker.poll import Poll
from jobqueue_client.worker.report import Report
from jobqueue_client.worker.stopping import Stopping

_HEED_S = 1.0  # for handlers that check whether their job is lost
_FLUSH_S = 3.0  # for the last ends and releases


@dataclass(frozen=True)
class WorkerOptions:
    """The options of a worker, without those of its client. Raises ValueError for an invalid one."""

    name: str
    concurrency: int
    poll_s: float
    grace_s: float
    heartbeat_s: float
    keep_alive_s: float
    max_jobs: int | None
    max_time_s: float | None
    memory_mb: float | None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not 1 <= len(self.name) <= 128:
            raise ValueError(f"name must be a string of 1 to 128 characters, not {self.name!r}")
        for name in ("concurrency", "max_jobs"):
            value = getattr(self, name)
            if (value is not None or name == "concurrency") and (not isinstance(value, int) or value < 1):
                raise ValueError(f"{name} must be an integer of at least 1, not {value!r}")
        check_seconds("poll_s", self.poll_s, 0.001, 60)
        check_seconds("grace_s", self.grace_s, 0)
        check_seconds("heartbeat_s", self.heartbeat_s, 0)
        check_seconds("keep_alive_s", self.keep_alive_s, 0)
        if self.max_time_s is not None:
            check_seconds("max_time_s", self.max_time_s, 0.001)
        if self.memory_mb is not None and not (isinstance(self.memory_mb, int | float) and self.memory_mb > 0):
            raise ValueError(f"memory_mb must be a number above 0, not {self.memory_mb!r}")


class Lifecycle:
    """One run of a worker, from start to stop."""

    def __init__(
        self, client: AsyncClient, options: WorkerOptions, work: Work, stopping: Stopping, report: Report
    ) -> None:
        self._options = options
        self._stopping = stopping
        self._report = report
        self._limits = Limits(options.max_jobs, options.max_time_s, options.memory_mb, stopping)
        outbox = Outbox()
        self._contact = Contact(report)
        self._leases = Leases(client, self._contact, report, options.keep_alive_s)
        self._handlers = Handlers(work, options.concurrency, self._limits, outbox, self._leases, report)
        self._poll = Poll(client, self._handlers, self._contact, report, work.handlers, options.name, options.poll_s)
        self._outbox_sender = OutboxSender(client, outbox, self._poll, self._contact, report)

    def pause(self, paused: frozenset[str | None]) -> None:
        """Take no jobs of these topics, and none at all if None is among them."""
        self._poll.pause(paused)

    async def work(self) -> bool:
        """Work until asked to stop. True if all jobs ended in time. Raises Refused."""
        self._report.event("worker.started", worker=self._options.name)
        polling = asyncio.create_task(self._poll.run())
        runs = (self._outbox_sender.run(), self._leases.run(), self._heartbeats(), self._limits.watch_time())
        loops = [asyncio.create_task(run) for run in runs]
        try:
            await _first(self._stopping.asked.wait(), polling, self._contact.given_up.wait())
            if self._stopping.reason is not None:
                self._report.event("worker.stopping", worker=self._options.name, reason=self._stopping.reason)
            clean = await self._wind_down()
            if polling.done():
                polling.result()
            if self._contact.refusal is not None:
                raise self._contact.refusal
            return clean
        except asyncio.CancelledError:
            await self._poll.stop()  # cancelling is not enough: jobs that the poll still brings would stay reserved
            await self._hand_over()
            raise
        finally:
            for loop in (polling, *loops):
                loop.cancel()
            self._handlers.close()
            self._report.event("worker.stopped", worker=self._options.name, **self._report.sums)

    async def _wind_down(self) -> bool:
        end = asyncio.get_running_loop().time() + self._options.grace_s
        await self._poll.stop()
        left_s = end - asyncio.get_running_loop().time()
        await _first(self._handlers.idle(), self._stopping.hurry.wait(), within_s=max(0, left_s))
        return await self._hand_over()

    async def _hand_over(self) -> bool:
        """Release the jobs that are still running. True if there were none and every end was answered."""
        finished = not self._handlers.running
        self._handlers.release_all()
        await _first(self._handlers.idle(), within_s=_HEED_S if not finished else 0)
        self._handlers.abandon()
        return await _first(self._handlers.idle(), within_s=_FLUSH_S) and finished

    async def _heartbeats(self) -> None:
        while self._options.heartbeat_s:
            await asyncio.sleep(self._options.heartbeat_s)
            running = self._handlers.running
            self._report.event("worker.heartbeat", worker=self._options.name, running=running, **self._report.sums)


async def _first(*waits: Awaitable[object], within_s: float | None = None) -> bool:
    """Wait for the first of these; then cancel those that are not tasks. False if none completed in time."""
    tasks = {asyncio.ensure_future(wait) for wait in waits}
    try:
        done, _ = await asyncio.wait(tasks, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)
    finally:
        for task in tasks.difference(waits):
            task.cancel()
