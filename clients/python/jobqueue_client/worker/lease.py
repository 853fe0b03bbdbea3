"""The leases of the running handlers' jobs: touched in time, and reported when they are lost."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from jobqueue_client import commands
from jobqueue_client.async_client import AsyncClient
from jobqueue_client.errors import JobQueueError, NotFound, Refused, StaleLease
from jobqueue_client.job import Job, LostReason
from jobqueue_client.retry import is_final
from jobqueue_client.worker.report import Contact, Report, survive

_MOST_COMMANDS = 1000  # the protocol's limit for a batch


def lost_by(error: Refused) -> LostReason:
    """Why a job is lost, given the refusal of a command with its lease."""
    if isinstance(error, NotFound):
        return "deleted"
    # A job that someone else finished without a lease counts as if they had held the lease.
    return "stale" if isinstance(error, StaleLease) or error.state == "finished" else "expired"


@dataclass(slots=True, eq=False)
class _Lease:
    """A lease; times are in seconds of the monotonic clock.

    After a touch, `ends` counts from when the touch was sent: a little before the real end.
    """

    job: Job
    keep_until: float
    ends: float
    touch_at: float

    def wakes_at(self) -> float:
        """When the lease next needs attention."""
        return min(self.ends, self.touch_at) if self.touch_at < self.keep_until else self.ends


class Leases:
    """Touches each job when a third of its TTR has passed; touches due at the same time share a request."""

    def __init__(self, client: AsyncClient, contact: Contact, report: Report, keep_alive_s: float) -> None:
        self._client = client
        self._route = client.route()
        self._contact = contact
        self._report = report
        self._keep_alive_s = keep_alive_s
        self._held: dict[Job, _Lease] = {}
        self._wake_at = math.inf
        self._sooner = asyncio.Event()
        self._touches: set[asyncio.Task[None]] = set()

    def hold(self, job: Job) -> None:
        """Keep the lease of a job alive."""
        now = time.monotonic()
        lease = _Lease(job, now + self._keep_alive_s, now + job.ttr, now + job.ttr / 3)
        self._held[job] = lease
        if lease.wakes_at() < self._wake_at:
            self._sooner.set()

    def drop(self, job: Job) -> None:
        """Stop keeping the lease of a job alive: its handler has ended."""
        self._held.pop(job, None)

    async def run(self) -> None:
        """Keep the leases alive until cancelled."""
        try:
            while True:
                await survive(self.tick, self._report)
        finally:
            for touch in self._touches:
                touch.cancel()

    async def tick(self) -> None:
        """Touch the leases that are due, report those that expired, and sleep until the next touch or expiry."""
        now = time.monotonic()
        self._expire(now)
        due = [lease for lease in self._held.values() if lease.touch_at <= now and lease.touch_at < lease.keep_until]
        for lease in due:  # set before the answer: a request that hangs must not hold up the next touch
            lease.touch_at = now + lease.job.ttr / 3
        for start in range(0, len(due), _MOST_COMMANDS):
            self._start(due[start : start + _MOST_COMMANDS])
        await self._sleep(now)

    def _expire(self, now: float) -> None:
        for lease in [lease for lease in self._held.values() if lease.ends <= now]:
            self._lose(lease.job, "expired")

    async def _sleep(self, now: float) -> None:
        self._wake_at = min((lease.wakes_at() for lease in self._held.values()), default=math.inf)
        self._sooner.clear()
        try:
            async with asyncio.timeout(None if self._wake_at == math.inf else max(0, self._wake_at - now)):
                await self._sooner.wait()
        except TimeoutError:
            pass

    def _start(self, leases: Sequence[_Lease]) -> None:
        touch = asyncio.create_task(self._touch(leases))
        self._touches.add(touch)
        touch.add_done_callback(self._touches.discard)

    async def _touch(self, leases: Sequence[_Lease]) -> None:
        sent = time.monotonic()
        try:
            touches = [commands.touch(lease.job, ttr=lease.job.ttr).fields for lease in leases]
            results = await self._client.send_many(touches, self._route)
        except JobQueueError as error:
            results = [error] * len(leases)
        self._contact.batch_answered(results)
        for lease, result in zip(leases, results, strict=True):
            if not isinstance(result, JobQueueError):
                lease.ends = max(lease.ends, sent + lease.job.ttr)
            elif isinstance(result, Refused) and is_final(result):
                self._lose(lease.job, lost_by(result))
            else:  # about seven more attempts before the lease ends
                lease.touch_at = min(lease.touch_at, time.monotonic() + lease.job.ttr / 10)
                self._sooner.set()

    def _lose(self, job: Job, reason: LostReason) -> None:
        if self._held.pop(job, None):
            job.lose(reason)
