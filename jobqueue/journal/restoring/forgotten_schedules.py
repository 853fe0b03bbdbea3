"""Schedules of which a failover forgot something: lost definitions are put, lost removals are made again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from buckets.errors import JobQueueError
from buckets.events.restoring import LostSchedule, Restoring
from buckets.job import Verb
from buckets.layout import SCHEDULE
from buckets.pool.pool import Pool
from buckets.schedules.record import Schedule
from buckets.schedules.schedules import Schedules
from jobqueue.journal.restoring.choice import Stopped, Sums
from jobqueue.journal.restoring.reading import Reading
from jobqueue.journal.restoring.schedules import ScheduleRow, fate_of, live_occurrences, schedule_rows


class LastTold(NamedTuple):
    """The last forgotten event of a schedule."""

    id: str
    verb: int
    at: int
    """us"""
    place: tuple[int, int, int]


class ForgottenSchedules:
    """Heals, or with `applies` False only tells. Counts in `sums`."""

    def __init__(self, reading: Reading, pool: Pool, restoring: Restoring, sums: Sums, *, applies: bool) -> None:
        self._reading, self._schedules, self._restoring = reading, Schedules(pool), restoring
        self._sums, self._applies = sums, applies

    async def heal(self, last: Sequence[LastTold]) -> None:
        """Heal schedules of which the journal has all that was told. Raises Stopped."""
        self._sums.counts["looked"] += len(last)
        rows = await schedule_rows(self._reading, [each.id.removeprefix(SCHEDULE) for each in last])
        for each in last:
            name = each.id.removeprefix(SCHEDULE)
            try:
                there = (await self._schedules.see(name)).schedule
                await self._heal(each, rows.get(name), there)
            except JobQueueError as error:
                raise Stopped(error.message) from error

    async def _heal(self, last: LastTold, row: ScheduleRow | None, there: Schedule | None) -> None:
        if last.verb == Verb.UNSCHEDULE:
            if there and there.revision <= last.at:
                await self._remove(there)
            else:
                self._sums.counts["known" if there else "ended"] += 1
        elif row and row.gone is None and (there is None or there.revision < row.revision):
            await self._put(row, there)
        else:
            self._sums.counts["known" if there else "ended"] += 1

    async def _remove(self, there: Schedule) -> None:
        removed = not self._applies or await self._restoring.remove_schedule(there.name, there.revision)
        self._sums.counts["ended_again" if removed else "known"] += 1

    async def _put(self, row: ScheduleRow, there: Schedule | None) -> None:
        """Put the schedule of a row, in place of an older definition if there is one."""
        fate = fate_of(row)
        if not fate.record:
            self._sums.name(fate.counted, f"{SCHEDULE}{row.name}")
            return
        seen = there.revision if there else 0
        lost = LostSchedule(row.name, fate.record, seen, await live_occurrences(self._reading, row.name))
        put = (await self._restoring.put_schedules([lost]))[0] if self._applies else True
        if isinstance(put, JobQueueError):
            raise put
        self._sums.counts["put" if put else "known"] += 1
        self._sums.counts["schedules"] += put
