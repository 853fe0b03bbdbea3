"""Carrying out one operation: planning it, searching, changing its jobs.

Each may be cut off at any time, and is begun again by whoever goes on: a plan and a search from their beginning, a
change from where each shard says it is.
"""

from __future__ import annotations

from collections.abc import Callable

from buckets.job import Job
from buckets.keys import FAMILIES
from buckets.operations.candidates import Candidates
from buckets.operations.changing import Changing
from buckets.operations.matching import matches
from buckets.operations.record import (
    DONE,
    FAILED,
    PLANNED,
    PLANNING,
    RUNNING,
    WAITING,
    Asked,
    Operation,
)
from buckets.operations.reporting import Halted, Reporter
from buckets.operations.store import PLAN_MS, Operations
from buckets.pages import SCANNED, Pages
from buckets.shards import ACTOR
from buckets.topics.within import reaches

MOST_COUNTED = 1_000_000
"""Entries of indexes that a plan looks at; how many match beyond is estimated."""
MOST_FOUND = 1000
"""Jobs that a search finds."""
SAMPLES = 20
_A_STEP = 80  # jobs that are counted
_SEARCH_REST = 1.0  # seconds of rest for each second of work


class CarryingOut:
    """Carries out operations in one process. `is_late`: asked once a second, whether jobs lately came late."""

    def __init__(self, operations: Operations, candidates: Candidates, is_late: Callable[[], bool]) -> None:
        self._operations = operations
        self._candidates = candidates
        self._is_late = is_late

    async def go_on(self, operation: Operation) -> None:
        """Do what its state asks for, to its end. Raises Halted, Unavailable."""
        ACTOR.set(operation.started_by or operation.asked.by)
        if operation.state == PLANNING:
            await self._plan(operation)
        elif operation.asked.kind == "find":
            await self._find(operation)
        else:
            await self._change(operation)

    async def fail(self, operation: Operation, error: str) -> None:
        """Note that it cannot be carried out, and why."""
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
        """How many jobs are in the topics, states and times of an operation, whatever else it asks for."""
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
        """Count the jobs that match; beyond a number of entries, estimate how many there are among `total`."""
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
        """Look at the keys of all jobs, as nothing else has all ids."""
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
