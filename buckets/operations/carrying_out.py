"""Carrying out one operation: planning it, searching for its jobs, changing its jobs.

Each of these may be interrupted at any time, and another instance may continue it: a plan or a search starts over, a
change continues from the position that is stored in each shard.

The jobs are changed page by page, at the operation's rate. The script that changes a page also writes the position
after it, and does nothing if another instance has written one meanwhile. So each job is changed once and counted once,
whichever process dies at whatever time. A job that has changed since its page was read is skipped.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing

from buckets.job import Job
from buckets.keys import FAMILIES
from buckets.operations.candidates import Candidates, Step, matches, new_due, read_place
from buckets.operations.store import (
    DONE,
    FAILED,
    PLAN_MS,
    PLANNED,
    PLANNING,
    RUNNING,
    WAITING,
    Asked,
    Halted,
    Operation,
    Operations,
    Reporter,
)
from buckets.pages import SCANNED, Pages
from buckets.scripts import Value
from buckets.shards import ACTOR
from buckets.topics.within import reaches

_MOST_A_PAGE = 80  # jobs that one script changes
_PAGES_A_SECOND = 10  # at least, so that jobs at a low rate are spread evenly
_UNWRITTEN = 100  # steps without a matching job, after which the position is written anyway
_NAP_S = 0.25  # the longest sleep: a pause or a cancellation must be noticed soon
_BEHIND_S = 0.2  # the most delay that is made up for, if a page took longer than its jobs may
_WINDOW_S = 5.0  # over which the displayed speed is averaged
_END = "end"
"""The position of a shard in which all jobs are changed."""


class Pace:
    """Spreads jobs over time: `rate` jobs a second, or half as many while other jobs are late. `is_late`: asked once a
    second."""

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
        """The recent speed, in jobs a second."""
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
        """Wait briefly for permission to change more jobs; returns whether they may be changed now."""
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
        self._numbers: list[tuple[int, int]] = []  # by shard: jobs changed and skipped

    async def carry_out(self, operation: Operation) -> None:
        """Change all jobs of the operation. Raises Halted, Unavailable."""
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
                await self._reporter.report()  # raises if it was halted: a step may have waited for Redis
                if step.jobs or unwritten >= _UNWRITTEN:
                    pace.spend(len(step.jobs))
                    position = await self._apply(operation, shard, position, step.place.write(), step.jobs)
                    unwritten = 0
                await self._rest(operation, pace)
        await self._apply(operation, shard, position, _END, [])

    async def _rest(self, operation: Operation, pace: Pace) -> None:
        """Wait as long as the pace requires, and report meanwhile."""
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
    """Yields each step while the next one is being read. Jobs may change between reading and use, as they may
    anyway."""
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


MOST_COUNTED = 1_000_000
"""The most index entries that a plan looks at; the number of further matches is estimated."""
MOST_FOUND = 1000
"""The most jobs that a search finds."""
SAMPLES = 20
_A_STEP = 80  # jobs that are counted per step
_SEARCH_REST = 1.0  # seconds of rest for each second of work


class CarryingOut:
    """Carries out operations in one process. `is_late`: returns whether jobs were late recently; asked once a
    second."""

    def __init__(self, operations: Operations, candidates: Candidates, is_late: Callable[[], bool]) -> None:
        self._operations = operations
        self._candidates = candidates
        self._is_late = is_late

    async def go_on(self, operation: Operation) -> None:
        """Do what the state of an operation requires, to the end. Raises Halted, Unavailable."""
        ACTOR.set(operation.started_by or operation.asked.by)
        if operation.state == PLANNING:
            await self._plan(operation)
        elif operation.asked.kind == "find":
            await self._find(operation)
        else:
            await self._change(operation)

    async def fail(self, operation: Operation, error: str) -> None:
        """Note that an operation cannot be carried out, and why."""
        now = await self._operations.pool.now_ms()
        states = [PLANNING, WAITING, RUNNING]
        numbers = {"done": operation.done, "skipped": operation.skipped}
        await self._operations.change(operation.id, states, state=FAILED, ended=now, error=error, **numbers)

    @property
    def _shards(self) -> range:
        return range(len(self._operations.pool.keys))

    async def _plan(self, operation: Operation) -> None:
        asked = operation.asked
        total = await self._total(asked)
        if asked.filter.is_plain and asked.at_ms is None:
            operation.count = total
            operation.samples = await self._first_ids(asked)
        else:
            await self._count(operation, total)
        await Reporter(self._operations, operation).end(PLANNED, PLAN_MS)

    async def _total(self, asked: Asked) -> int:
        """How many jobs are in the topics, states and times of an operation, regardless of the rest of its filter."""
        total = 0
        for shard in self._shards:
            for topic in await self._candidates.topics(asked, shard):
                total += await self._candidates.total(asked, shard, topic)
        return total

    async def _first_ids(self, asked: Asked) -> list[str]:
        found: list[str] = []
        for shard in self._shards:
            async for step in self._candidates.steps(asked, shard, None, SAMPLES):
                found += [job.id for job in step.jobs]
                if len(found) >= SAMPLES:
                    return found[:SAMPLES]
        return found

    async def _count(self, operation: Operation, total: int) -> None:
        """Count the jobs that match; after MOST_COUNTED entries, estimate how many of `total` match."""
        asked, met = operation.asked, 0
        operation.count, operation.looked, operation.samples = 0, 0, []
        reporter = Reporter(self._operations, operation)
        for shard in self._shards:
            async for step in self._candidates.steps(asked, shard, None, _A_STEP):
                met += step.met
                operation.looked += step.looked
                operation.count += len(step.jobs)
                operation.samples += [job.id for job in step.jobs[: SAMPLES - len(operation.samples)]]
                if operation.looked >= MOST_COUNTED:
                    operation.exact = False
                    operation.count = round(operation.count * max(total, met) / met) if met else 0
                    return
                await reporter.report()

    async def _find(self, operation: Operation) -> None:
        operation.looked, operation.samples = 0, []
        search = self._by_prefix if operation.is_search else self._by_topics
        await search(operation)
        operation.exact = len(operation.samples) <= MOST_FOUND
        operation.samples = operation.samples[:MOST_FOUND]
        operation.count = operation.done = len(operation.samples)
        await Reporter(self._operations, operation).end(DONE)

    async def _by_topics(self, operation: Operation) -> None:
        reporter = Reporter(self._operations, operation)
        for shard in self._shards:
            async for step in self._candidates.steps(
                operation.asked, shard, None, _A_STEP, operation.asked.filter.prefix
            ):
                operation.looked += step.looked
                operation.samples += [job.id for job in step.jobs]
                if len(operation.samples) > MOST_FOUND:
                    return
                await reporter.report()

    async def _by_prefix(self, operation: Operation) -> None:
        """Look at the keys of all jobs, since no index has all ids."""
        pool, asked = self._operations.pool, operation.asked
        pages, found, reporter = Pages(pool.redis, rest=_SEARCH_REST), set[str](), Reporter(self._operations, operation)
        family = FAMILIES["JOB"]
        async for keys in pages.keys(f"{{{pool.namespace}:*}}:{family}{asked.filter.prefix}*"):
            operation.looked += SCANNED
            ids = {key.decode("utf-8", "replace").partition(f"}}:{family}")[2] for key in keys} - found
            for job in [await pool.get(each) for each in sorted(ids)]:
                if job and self._is_found(asked, job):
                    found.add(job.id)
            operation.samples = sorted(found)
            if len(found) > MOST_FOUND:
                return
            await reporter.report()

    @staticmethod
    def _is_found(asked: Asked, job: Job) -> bool:
        return job.state in asked.states and reaches(asked.within, job.topic) and matches(asked, job)

    async def _change(self, operation: Operation) -> None:
        reporter = Reporter(self._operations, operation)
        if operation.state == WAITING:
            await reporter.begin(RUNNING)
        changing = Changing(self._operations, self._candidates, reporter, self._is_late)
        try:
            await changing.carry_out(operation)
        except Halted:
            await reporter.add_up()
            raise
        if operation.exact:
            operation.skipped = max(operation.count - operation.done, operation.skipped)
        operation.speed, operation.slowed = 0.0, False
        await reporter.end(DONE)
