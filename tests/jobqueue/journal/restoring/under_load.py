"""A namespace that loses its Redis while jobs are added and workers go on, and a check of what comes back."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from buckets.errors import JobQueueError
from buckets.job import Job, NewJob
from buckets.pool.pool import Pool
from tests.buckets.instances import Instance
from tests.jobqueue.journal.restoring.lost import World
from tests.kit.forked import Process, started

HOUR = 3_600_000
_PAGE = 200


@dataclass(frozen=True)
class Numbers:
    """How many jobs there are when Redis is lost."""

    live: int
    finished: int
    reserved: int
    kills: int
    rate: int


@dataclass
class Work:
    """What was added, delivered and finished, as those who did it know it."""

    pool: Pool
    waiting: set[str] = field(default_factory=set)
    held: dict[str, int] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)
    """Finished, and known to be in the journal."""
    finished: set[str] = field(default_factory=set)
    """By the workers, since."""
    again: list[str] = field(default_factory=list)
    """Delivered though they were finished."""
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    async def fill(self, numbers: Numbers) -> None:
        """Jobs that wait for an hour or for their workers; some that are finished without a trace; some reserved."""
        for first in range(0, numbers.live, 2 * _PAGE):
            await self._add("waiting", _PAGE, delay_ms=HOUR)
            await self._add("work", min(_PAGE, numbers.live - first))
        for _ in range(0, numbers.finished, _PAGE):
            await self._add("done", _PAGE, retention_ms=0)
            jobs = (await self.pool.pop(["done"], _PAGE)).jobs
            await self.pool.finish([(job.id, job.lease) for job in jobs])
            self.done |= {job.id for job in jobs}
        for _ in range(0, numbers.reserved, _PAGE):
            await self._add("held", _PAGE)
            self.held |= {job.id: job.lease for job in (await self.pool.pop(["held"], _PAGE, ttr_ms=HOUR)).jobs}

    async def _add(self, topic: str, number: int, **fields: Any) -> None:
        jobs = [NewJob(f"{topic}:{next(self._numbers)}", topic, b'"a body"', **fields) for _ in range(number)]
        for job, result in zip(jobs, await self.pool.add(jobs), strict=True):
            if topic in ("waiting", "work") and not isinstance(result, JobQueueError):
                self.waiting.add(job.id)

    @contextlib.asynccontextmanager
    async def going_on(self) -> AsyncIterator[None]:
        """Jobs are added, delivered and finished meanwhile, those finished without a trace."""
        async with Instance(self.pool).running():
            tasks = [asyncio.create_task(each) for each in (self._produce(), self._consume(), self._consume())]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
                for ended in await asyncio.gather(*tasks, return_exceptions=True):
                    assert isinstance(ended, asyncio.CancelledError), ended

    async def _produce(self) -> None:
        while True:
            await self._add("work", 5, retention_ms=0)
            await asyncio.sleep(0.02)

    async def _consume(self) -> None:
        while True:
            jobs = (await self.pool.pop(["work", "done"], 4, ttr_ms=2_000)).jobs
            self.again += [job.id for job in jobs if job.id in self.done or job.id in self.finished]
            await asyncio.sleep(0.01)
            await self._finish(jobs)

    async def _finish(self, jobs: Sequence[Job]) -> None:
        results = await self.pool.finish([(job.id, job.lease) for job in jobs])
        self.finished |= {job.id for job, result in zip(jobs, results, strict=True) if result == "finished"}


@contextlib.asynccontextmanager
async def process(*arguments: str, redis: str, journal: str) -> AsyncIterator[Process]:
    """`jobqueue` with these arguments; it is killed at the end. What it says is among the output of the test."""
    environment = {**os.environ, "JOBQUEUE_REDIS": redis, "JOBQUEUE_JOURNAL": journal}
    with os.fdopen(os.dup(2), "wb") as output:
        running = await started(arguments, environment, stdout=output, stderr=output)
    try:
        yield running
    finally:
        if running.returncode is None:
            running.kill()
            await running.wait()


async def restored(world: World) -> int:
    """How many jobs Redis has got back."""
    found = 0
    for keys in world.pool.keys:
        for topic in ("work", "waiting", "held"):
            found += int(await world.pool.redis.read("HGET", f"{keys.tag}c:{topic}", "restored") or 0)
    return found
