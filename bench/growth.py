"""`make bench-growth`: whether add, pop and the timer are as fast with 1,000,000 pending jobs as with 1,000.

Two Redis servers, one with few and one with many pending jobs, do the same work in turns (A B A B). It prints medians
and their ratio. It calls the engine directly, so that HTTP does not hide a difference. `python -m bench.growth
1000 20000` sets other numbers of jobs.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

from bench.memory import BODY, fill
from buckets import NewJob, Pool, Redis
from tests.kit.redis_server import RedisServer

WORK = 5000  # jobs per round
ROUNDS = 9
BATCH = 100


class Subject:
    """A pool with some pending jobs, and the seconds that each kind of work took."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.took: dict[str, list[float]] = {"add": [], "timer": [], "pop and finish": []}

    async def round(self, number: int) -> None:
        """Add jobs due at once, let the timers move them, pop and finish them."""
        jobs = [NewJob(f"work:{number:03d}:{each:010d}", "work", BODY, delay_ms=1) for each in range(WORK)]
        await self._timed("add", self._add(jobs))
        await asyncio.sleep(0.01)
        await self._timed("timer", self._tick())
        await self._timed("pop and finish", self._work())

    async def _timed(self, name: str, work: object) -> None:
        begun = time.perf_counter()
        await work  # type: ignore[misc]  # a coroutine
        self.took[name].append(time.perf_counter() - begun)

    async def _add(self, jobs: list[NewJob]) -> None:
        for start in range(0, WORK, BATCH):
            await self.pool.add(jobs[start : start + BATCH])

    async def _tick(self) -> None:
        for bucket in range(self.pool.buckets):
            while (await self.pool.due(0, bucket))[1] == 0:
                pass

    async def _work(self) -> None:
        for _ in range(0, WORK, BATCH):
            popped = await self.pool.pop(["work"], BATCH)
            assert len(popped.jobs) == BATCH
            await self.pool.finish([(job.id, job.lease) for job in popped.jobs])


async def main(few: int, many: int) -> None:
    async with AsyncExitStack() as stack:
        subjects = []
        for pending in (few, many):
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="jq-"))
            redis = Redis(stack.enter_context(RedisServer(Path(folder))).url)
            stack.push_async_callback(redis.close)
            pool = await Pool.open(redis)
            await fill(pool, 0, pending)
            subjects.append(Subject(pool))
        for number in range(ROUNDS):
            for subject in subjects:
                await subject.round(number)
    for name in subjects[0].took:
        a, b = (statistics.median(subject.took[name]) for subject in subjects)
        print(
            f"{name:16} {WORK / a:9,.0f} jobs/s with {few:,} pending, {WORK / b:9,.0f} with {many:,}:"
            f" ratio {b / a:.2f} in time   (target: within 1.2)"
        )


if __name__ == "__main__":
    asyncio.run(main(*[int(each) for each in sys.argv[1:]] or [1000, 1_000_000]))
