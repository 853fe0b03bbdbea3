"""The pops that bring the jobs: polls that wait, and pops that go with the ends of jobs and do not."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterable, Iterator

from jobqueue_client import commands
from jobqueue_client.answers import Answer
from jobqueue_client.async_client import AsyncClient
from jobqueue_client.commands import Command
from jobqueue_client.crew import Crew
from jobqueue_client.errors import JobQueueError, Unreachable
from jobqueue_client.exchange import result_of
from jobqueue_client.job import Job
from jobqueue_client.loops import survive
from jobqueue_client.reach import Reach
from jobqueue_client.retry import is_final, pause_s

_MOST = 1000  # the protocol's bound of a pop
_LEAVE_S = 1.0


class Polling:
    """One pop at a time, of either kind, for as many jobs as there are free handlers."""

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
        self._none_beside = asyncio.Event()
        self._none_beside.set()
        self._stopping = False
        self._failures = 0

    async def run(self) -> None:
        """Poll until stopped. Raises Refused when no repetition can help."""
        while not self._stopping:
            await survive(self.tick)

    async def tick(self) -> None:
        """One poll, when there is room that no other pop fills; after a failure, a pause."""
        await self._crew.has_room()
        await self._none_beside.wait()
        free = self._crew.room
        if self._stopping or free <= 0:  # it may have become so while it waited
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

    @contextlib.contextmanager
    def beside(self, ends: int) -> Iterator[Command[list[Job]] | None]:
        """The pop to send with so many ends, for the places that they free and what room there is. None: no pop."""
        if self._stopping or self._poll:
            yield None
            return
        self._none_beside.clear()
        try:
            yield commands.pop_many(self._turned(), min(ends + self._crew.room, _MOST), worker=self._name)
        finally:
            self._none_beside.set()

    def take(self, pop: Command[list[Job]], result: Answer | JobQueueError) -> None:
        """Begin the jobs that came with ends. After an error there is room: the poll then meets it too, and tells."""
        if not isinstance(result, JobQueueError):
            with contextlib.suppress(Unreachable):
                self._begin(result_of(pop, result))

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
        # After a failure without waiting: else it would be known only when a job comes that the service is back.
        wait_s = 0 if self._failures else self._poll_s
        jobs = await self._client.pop_many(self._turned(), min(free, _MOST), wait=wait_s, worker=self._name)
        self._begin(jobs)

    def _turned(self) -> list[str]:
        """The topics, each of them the first in its turn."""
        self._topics.rotate(-1)
        return list(self._topics)

    def _begin(self, jobs: list[Job]) -> None:
        for job in jobs:
            if self._stopping:
                self._crew.give_back(job)
            else:
                self._crew.begin(job)
