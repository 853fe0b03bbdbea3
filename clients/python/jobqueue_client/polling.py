"""The long poll that brings the jobs."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterable

from jobqueue_client.async_client import AsyncClient
from jobqueue_client.crew import Crew
from jobqueue_client.errors import JobQueueError
from jobqueue_client.loops import survive
from jobqueue_client.reach import Reach
from jobqueue_client.retry import is_final, pause_s

_MOST = 1000  # the protocol's bound of a pop
_LEAVE_S = 1.0


class Polling:
    """One poll at a time, for as many jobs as there are free handlers."""

    def __init__(
        self, client: AsyncClient, crew: Crew, reach: Reach, topics: Iterable[str], name: str, poll_s: float
    ) -> None:
        self._client = client
        self._crew = crew
        self._reach = reach
        self._topics = deque(topics)
        self._name = name
        self._poll_s = poll_s
        self._poll: asyncio.Task[None] | None = None
        self._stopping = False
        self._failures = 0

    async def run(self) -> None:
        """Poll until stopped. Raises Refused when no repetition can help."""
        while not self._stopping:
            await survive(self.tick)

    async def tick(self) -> None:
        """One poll, when there is room; after a failure, a pause."""
        free = await self._crew.room()
        if self._stopping:  # it may have been told so while it waited
            return
        self._poll = asyncio.create_task(self._pop(free))
        try:
            await self._poll
            self._failures = 0
            self._reach.answered()
        except JobQueueError as error:
            if is_final(error):
                raise
            self._reach.failed(error)
            self._failures += 1
            await asyncio.sleep(pause_s(self._failures, error.retry_after))
        finally:
            self._poll = None

    async def stop(self) -> None:
        """Take no new job. The poll that waits ends at once; what it still brings goes back."""
        self._stopping = True
        if self._poll is None:
            return
        leave = asyncio.create_task(self._leave())
        await asyncio.wait({self._poll}, timeout=_LEAVE_S)  # an older service does not know `leave`
        leave.cancel()

    async def _leave(self) -> None:
        with contextlib.suppress(JobQueueError):
            await self._client.leave(self._name)

    async def _pop(self, free: int) -> None:
        self._topics.rotate(-1)
        # After a failure without waiting: else it would be known only when a job comes that the service is back.
        wait_s = 0 if self._failures else self._poll_s
        topics = list(self._topics)
        jobs = await self._client.pop_many(topics, min(free, _MOST), wait=wait_s, worker=self._name)
        for job in jobs:
            if self._stopping:
                self._crew.give_back(job)
            else:
                self._crew.begin(job)
