"""Changing the jobs of an operation: page by page, at its rate, and so that it can be gone on with anywhere.

The script that changes a page of jobs also writes the position behind them, and does nothing where another instance has
written one meanwhile. So each job is changed once, and counted once, whoever dies when. A job that is no longer as it
was when its page was read is skipped.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing

from buckets.job import Job
from buckets.operations.candidates import Candidates, Step, read_place
from buckets.operations.matching import new_due
from buckets.operations.record import Asked, Operation
from buckets.operations.reporting import Halted, Reporter
from buckets.operations.store import Operations
from buckets.scripts import Value

_MOST_A_PAGE = 80  # jobs that one script changes
_PAGES_A_SECOND = 10  # at least, so that jobs of a low rate are spread evenly
_UNWRITTEN = 100  # steps without a job that matches, behind which the position is written all the same
_NAP_S = 0.25  # how long a pause or a cancellation may go unnoticed
_BEHIND_S = 0.2  # that is made up for, where a page took longer than its jobs may
_WINDOW_S = 5.0  # of the speed that is shown
_END = "end"
"""The position of a shard whose jobs are all changed."""


class Pace:
    """Spreads jobs over time: `rate` a second, or half of it while others come late. `is_late`: asked once a second."""

    def __init__(self, rate: int, is_late: Callable[[], bool]) -> None:
        self.is_slowed = False
        self._rate = rate
        self._is_late = is_late
        self._loop = asyncio.get_running_loop()
        self._next = self._asked = self._loop.time()
        self._changed: deque[tuple[float, int]] = deque()

    @property
    def page(self) -> int:
        """How many jobs to change at once."""
        return max(1, min(_MOST_A_PAGE, self._rate // _PAGES_A_SECOND))

    @property
    def speed(self) -> float:
        """Jobs a second, lately."""
        if not self._changed:
            return 0.0
        span = max(self._loop.time() - self._changed[0][0], _NAP_S)
        return sum(jobs for _, jobs in self._changed) / span

    def spend(self, jobs: int) -> None:
        """Count jobs that are about to be changed."""
        now = self._loop.time()
        rate = self._rate / 2 if self.is_slowed else self._rate
        self._next = max(self._next, now - _BEHIND_S) + jobs / rate
        self._changed.append((now, jobs))
        while self._changed[0][0] < now - _WINDOW_S:
            self._changed.popleft()
        if now - self._asked >= 1:
            self._asked, self.is_slowed = now, self._is_late()

    async def nap(self) -> bool:
        """Wait until more jobs may be changed, but not long; returns whether they may."""
        left = self._next - self._loop.time()
        if left > 0:
            await asyncio.sleep(min(left, _NAP_S))
        return left <= _NAP_S


class Changing:
    """Changes the jobs of one operation."""

    def __init__(
        self, operations: Operations, candidates: Candidates, reporter: Reporter, is_late: Callable[[], bool]
    ) -> None:
        self._operations = operations
        self._pool = operations.pool
        self._candidates = candidates
        self._reporter = reporter
        self._is_late = is_late
        self._numbers: list[tuple[int, int]] = []  # of each shard: jobs that were changed, and skipped

    async def carry_out(self, operation: Operation) -> None:
        """Change them all. Raises Halted, Unavailable."""
        pace = Pace(operation.rate, self._is_late)
        shards = range(len(self._pool.keys))
        begun = [await self._operations.progress(operation.id, shard) for shard in shards]
        self._numbers = [(each.done, each.skipped) for each in begun]
        for shard in shards:
            if begun[shard].position != _END:
                await self._shard(operation, shard, begun[shard].position, pace)
        self._sum_up(operation, pace)

    async def _shard(self, operation: Operation, shard: int, position: str, pace: Pace) -> None:
        unwritten = 0
        asked = operation.asked
        steps = self._candidates.steps(asked, shard, read_place(position), pace.page, asked.filter.prefix)
        async with aclosing(_read_ahead(steps)) as ahead:
            async for step in ahead:
                unwritten += 1
                await self._reporter.report()  # whether it still is to be carried out: a step may have waited for Redis
                if step.jobs or unwritten >= _UNWRITTEN:
                    pace.spend(len(step.jobs))
                    position = await self._apply(operation, shard, position, step.place.write(), step.jobs)
                    unwritten = 0
                await self._rest(operation, pace)
        await self._apply(operation, shard, position, _END, [])

    async def _rest(self, operation: Operation, pace: Pace) -> None:
        """Wait as the pace says, and report meanwhile."""
        may_go_on = False
        while not may_go_on:
            may_go_on = await pace.nap()
            self._sum_up(operation, pace)
            await self._reporter.report()

    def _sum_up(self, operation: Operation, pace: Pace) -> None:
        operation.done = sum(done for done, _ in self._numbers)
        operation.skipped = sum(skipped for _, skipped in self._numbers)
        operation.speed, operation.slowed = pace.speed, pace.is_slowed

    async def _apply(self, operation: Operation, shard: int, before: str, after: str, jobs: list[Job]) -> str:
        flat = [value for job in jobs for value in _arguments(operation.asked, job)]
        numbers = await self._operations.apply(operation, shard, before, after, flat)
        if numbers is None:
            raise Halted
        self._numbers[shard] = numbers
        if operation.asked.kind in ("kick", "run", "reschedule"):
            for topic in {job.topic for job in jobs}:
                self._pool.ready_shards.stir_topic(shard, topic)
        return after


async def _read_ahead(steps: AsyncIterator[Step]) -> AsyncGenerator[Step, None]:
    """The steps, each while the next one is being read. What is read may be changed by then; that is so anyway."""
    reading = asyncio.ensure_future(anext(steps, None))
    try:
        while (step := await reading) is not None:
            reading = asyncio.ensure_future(anext(steps, None))
            yield step
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


def _arguments(asked: Asked, job: Job) -> tuple[Value, ...]:
    return job.id, job.header, new_due(asked, job)
