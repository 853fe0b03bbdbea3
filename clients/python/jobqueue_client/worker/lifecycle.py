"""The lifecycle of a worker: builds its parts, runs them, and stops them in order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass

from jobqueue_client.async_client import AsyncClient
from jobqueue_client.options import check_seconds
from jobqueue_client.worker.handlers import Handlers
from jobqueue_client.worker.lease import Leases
from jobqueue_client.worker.outbox import Outbox
from jobqueue_client.worker.outbox_sender import OutboxSender
from jobqueue_client.worker.poll import Poll
from jobqueue_client.worker.report import Report
from jobqueue_client.worker.threads import Handler

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

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not 1 <= len(self.name) <= 128:
            raise ValueError(f"name must be a string of 1 to 128 characters, not {self.name!r}")
        if not isinstance(self.concurrency, int) or self.concurrency < 1:
            raise ValueError(f"concurrency must be an integer of at least 1, not {self.concurrency!r}")
        check_seconds("poll_s", self.poll_s, 0.001, 60)
        check_seconds("grace_s", self.grace_s, 0)
        check_seconds("heartbeat_s", self.heartbeat_s, 0)
        check_seconds("keep_alive_s", self.keep_alive_s, 0)


class Lifecycle:
    """One run of a worker, from start to stop."""

    def __init__(
        self, client: AsyncClient, options: WorkerOptions, handlers: Mapping[str, Handler], report: Report
    ) -> None:
        self._options = options
        self._report = report
        outbox = Outbox()
        self._leases = Leases(client, report, options.keep_alive_s)
        self._handlers = Handlers(handlers, options.concurrency, outbox, self._leases, report)
        self._poll = Poll(client, self._handlers, report, handlers, options.name, options.poll_s)
        self._outbox_sender = OutboxSender(client, outbox, self._poll, report)

    async def work(self, stop: asyncio.Event, hurry: asyncio.Event) -> bool:
        """Work until `stop` is set; `hurry` ends the grace period. True if all jobs ended in time. Raises Refused."""
        self._report.event("worker.started", worker=self._options.name)
        polling = asyncio.create_task(self._poll.run())
        loops = [
            asyncio.create_task(loop) for loop in (self._outbox_sender.run(), self._leases.run(), self._heartbeats())
        ]
        try:
            await _first(stop.wait(), polling)
            self._report.event("worker.stopping", worker=self._options.name)
            clean = await self._wind_down(hurry)
            if polling.done():
                polling.result()
            return clean
        except asyncio.CancelledError:
            await self._poll.stop()  # cancelling is not enough: jobs that the poll still brings would stay reserved
            await self._hand_over()
            raise
        finally:
            for loop in (polling, *loops):
                loop.cancel()
            self._handlers.close()
            self._report.event("worker.stopped", worker=self._options.name)

    async def _wind_down(self, hurry: asyncio.Event) -> bool:
        end = asyncio.get_running_loop().time() + self._options.grace_s
        await self._poll.stop()
        left_s = end - asyncio.get_running_loop().time()
        await _first(self._handlers.idle(), hurry.wait(), within_s=max(0, left_s))
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
            self._report.heartbeat(worker=self._options.name, running=self._handlers.running)


async def _first(*waits: Awaitable[object], within_s: float | None = None) -> bool:
    """Wait for the first of these; then cancel those that are not tasks. False if none completed in time."""
    tasks = {asyncio.ensure_future(wait) for wait in waits}
    try:
        done, _ = await asyncio.wait(tasks, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)
    finally:
        for task in tasks.difference(waits):
            task.cancel()
