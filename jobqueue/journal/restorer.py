"""Brings jobs back for callers of the service, from the journal in its settings, which another process writes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from buckets import Pool
from buckets.errors import NotFound, Unavailable
from buckets.topics.within import reaches
from jobqueue.journal.store import Away
from jobqueue.journal.url import Refused

if TYPE_CHECKING:
    from jobqueue.journal.restoring.reading import Choice, Reading, Sums

PATIENCE_S = 10.0  # for a journal or a Redis that makes no progress


class Restorer:
    """Restores from one journal. `source`: the name of the namespace in the journal."""

    def __init__(self, pool: Pool, url: str, source: str) -> None:
        self._pool = pool
        self._url = url
        self._source = source

    async def one(self, job_id: str, within: str) -> int:
        """Bring a job back, as a new life if it has ended; returns how many came back. Raises NotFound, Unavailable."""
        from jobqueue.journal.restoring import restore  # noqa: PLC0415 - what a service without a journal does not load
        from jobqueue.journal.restoring.reading import Choice, Sums  # noqa: PLC0415
        from jobqueue.journal.restoring.runs import Run  # noqa: PLC0415

        async with self._opened() as reading:
            row = (await reading.jobs([job_id])).get(job_id)
            if row is None or not reaches(within, row.topic):
                raise NotFound
            run, sums = await Run.begin(reading, self._pool, Choice(ids=(job_id,)), "ended"), Sums()
            await restore.carry_out(reading, self._pool, [job_id], run, sums)
            return _came_back(sums)

    async def all(self, within: str, *, skips_overdue: bool) -> int:
        """Bring back all jobs and schedules that Redis does not know; returns how many jobs came back. Raises
        Unavailable."""
        from jobqueue.journal.restoring.reading import Choice  # noqa: PLC0415 - as above

        choice = Choice(topics=within, overdue="skip" if skips_overdue else "run")
        async with self._opened() as reading:
            counts = (await self._carried_out(reading, choice)).counts
            return counts["put"] - counts["schedules"]

    async def _carried_out(self, reading: Reading, choice: Choice) -> Sums:
        from buckets.events.restoring import Restoring  # noqa: PLC0415 - as above
        from jobqueue.journal.restoring.restore import Restore  # noqa: PLC0415
        from jobqueue.journal.restoring.runs import Run, check  # noqa: PLC0415

        await check(reading, choice)
        run = await Run.begin(reading, self._pool, choice)
        return await Restore(reading, Restoring(self._pool, run.actor), choice, run).carry_out()

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[Reading]:
        from jobqueue.journal.database import open_engine  # noqa: PLC0415 - as above
        from jobqueue.journal.restoring.reading import NotBegun, Reading, Stopped  # noqa: PLC0415

        try:
            engine = await open_engine(self._url)
            try:
                yield Reading(engine, self._source, PATIENCE_S)
            finally:
                await engine.dispose()
        except (Away, Refused, NotBegun, Stopped) as error:
            raise Unavailable(str(error)) from error


def _came_back(sums: Sums) -> int:
    """How many came back. Raises NotFound if the journal does not have all of the job."""
    if sums.left:
        (why,) = sums.named
        raise NotFound(f"the journal does not have all of this job ({why.replace('_', ' ')})")
    return sums.counts["put"]
