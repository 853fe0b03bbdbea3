"""A run that is killed before or after any of its commands, and repeated: nothing is lost, nothing runs again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy import Executable

from buckets.errors import JobQueueError
from buckets.events.restoring import Asked, Restoring
from buckets.job import NewJob
from buckets.pool.pool import Pool
from jobqueue.journal.restoring import candidates, restore
from jobqueue.journal.restoring.reading import Choice, Reading
from jobqueue.journal.restoring.restore import Restore
from jobqueue.journal.restoring.runs import Run
from tests.buckets.books import check_books
from tests.jobqueue.journal.restoring.lost import SOURCE, World

HOUR = 3_600_000


class Killed(BaseException):
    """In place of a kill: nothing catches it."""


class Fuse:
    """Kills at a command, before it is sent or after it was carried out."""

    def __init__(self, commands: int, *, after: bool) -> None:
        self._left, self._after = commands, after

    async def through(self, work: Any) -> Any:
        self._left -= 1
        if self._left < 0 and not self._after:
            work.close()
            raise Killed
        result = await work
        if self._left < 0:
            raise Killed
        return result


class FusedRestoring(Restoring):
    def __init__(self, pool: Pool, actor: str, fuse: Fuse) -> None:
        super().__init__(pool, actor)
        self._fuse = fuse

    async def ask(self, ids: Sequence[str]) -> list[Asked]:
        asked: list[Asked] = await self._fuse.through(super().ask(ids))
        return asked

    async def put(self, jobs: Sequence[tuple[str, bytes]]) -> list[bool | JobQueueError]:
        results: list[bool | JobQueueError] = await self._fuse.through(super().put(jobs))
        return results


class FusedReading(Reading):
    fuse: Fuse

    async def run(self, *statements: Executable) -> Any:
        return await self.fuse.through(super().run(*statements))


async def carry_out(world: World, fuse: Fuse) -> None:
    reading = FusedReading(world.engine, SOURCE, 10.0)
    reading.fuse = fuse
    run = await Run.begin(reading, world.pool, Choice())
    await Restore(reading, FusedRestoring(world.pool, run.actor, fuse), Choice(), run, rate=100_000).carry_out()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_run_may_be_killed_at_any_command(world: World, monkeypatch: pytest.MonkeyPatch, after: bool) -> None:
    monkeypatch.setattr(candidates, "PAGE", 4)
    monkeypatch.setattr(restore, "_MOST_AHEAD", 1)
    pool = world.pool
    jobs = [NewJob(f"j{n}", "t", b"1", delay_ms=n % 2 * HOUR, retention_ms=0) for n in range(24)]
    await pool.add(jobs)
    await world.drained()
    await world.lose()
    finished: set[str] = set()
    killed = 0
    while True:
        try:
            await carry_out(world, Fuse(killed, after=after))
            break
        except Killed:
            killed += 1
        for job in (await pool.pop(["t"], 1)).jobs:  # a worker goes on meanwhile
            assert job.id not in finished
            assert await pool.finish([(job.id, job.lease)]) == ["finished"]
            finished.add(job.id)
    assert killed > 20 and len(finished) > 2
    await carry_out(world, Fuse(1_000, after=after))
    assert set(await world.records()) == {job.id for job in jobs} - finished
    await check_books(pool.redis, pool)
