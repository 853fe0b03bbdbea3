"""Heals what a failover forgot: moves that the journal has, and that the Redis which took over does not know.

For each job, the last forgotten event counts. A life that had ended by then ends again, unless another worker has it; a
life that Redis never had is put, replacing an older one. Whatever Redis has done with a job since is left alone. Any
other move is only reported: Redis has the job as it was before, and continues from there.

For schedules, lost definitions are put, and lost removals are repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, and_, or_, select, text, update

from buckets.errors import JobQueueError
from buckets.events.restoring import PAGE, Asked, Lost, LostSchedule, Restoring
from buckets.job import Verb
from buckets.layout import SCHEDULE
from buckets.pages import chunks
from buckets.pool.pool import Pool
from buckets.schedules.record import Schedule
from buckets.schedules.schedules import Schedules
from jobqueue.journal import choices, tables
from jobqueue.journal.choices import has_gone_back
from jobqueue.journal.restoring.fates import fate_of
from jobqueue.journal.restoring.lost import ScheduleRow, fate_of_schedule, live_occurrences, schedule_rows
from jobqueue.journal.restoring.reading import (
    ENDED,
    Choice,
    JobRow,
    NotBegun,
    Progress,
    Reading,
    Report,
    Stopped,
    Sums,
    kept,
)
from jobqueue.journal.restoring.runs import Passing


class LastTold(NamedTuple):
    """The last forgotten event of a schedule."""

    id: str
    verb: int
    at: int
    """us"""
    place: tuple[int, int, int]


class ForgottenSchedules:
    """Heals schedules, or only reports if `applies` is False. Counts in `sums`."""

    def __init__(self, reading: Reading, pool: Pool, restoring: Restoring, sums: Sums, *, applies: bool) -> None:
        self._reading, self._schedules, self._restoring = reading, Schedules(pool), restoring
        self._sums, self._applies = sums, applies

    async def heal(self, last: Sequence[LastTold]) -> None:
        """Heal schedules. The journal must have everything that was recorded about them. Raises Stopped."""
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
        """Put the schedule of a row, replacing an older definition if there is one."""
        fate = fate_of_schedule(row)
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


_GAP, _EVENT = tables.gap.c, tables.event.c
_AS_THEY_WERE = Choice()
_MADE_AGAIN = (Verb.ADD, Verb.DUE, Verb.WALK)
"""Verbs of moves that Redis has in any case, or repeats by itself."""


class _Last(NamedTuple):
    """The last forgotten event of a job."""

    id: str
    life: int
    state: int
    verb: int
    lease: int
    place: tuple[int, int, int]
    until: tuple[int, int]
    """The last entry that was forgotten with it."""


class Forgotten:
    """Heals what Redis forgot in the failovers that were not healed yet. `actor`: empty to only report."""

    def __init__(
        self, reading: Reading, pool: Pool, actor: str, *, stale: bool = False, report: Report = lambda progress: None
    ) -> None:
        self._reading, self._pool = reading, pool
        self._restoring, self._passing = Restoring(pool, actor), Passing(reading)
        self._applies, self._stale, self._report = bool(actor), stale, report
        self.sums = Sums()
        self._schedules = ForgottenSchedules(reading, pool, self._restoring, self.sums, applies=self._applies)

    async def carry_out(self) -> Sums:
        """Returns the counts of `Sums`, and these: `ended_again`; `held`, by another worker; `older`, if the last
        forgotten move is neither an add nor an end. Raises Stopped, NotBegun."""
        asked = await self._restoring.ask(())
        if not self._stale:
            await self._passing.begin(asked)
        gaps = await self._gaps()
        await self._check_kept(gaps)
        last: dict[str, _Last] = {}
        schedules: dict[str, LastTold] = {}
        for gap in gaps:
            for each in await self._events(gap):
                last[each.id] = max(last.get(each.id, each), each, key=lambda one: one.place)
            for told in await self._of_schedules(gap):
                schedules[told.id] = max(schedules.get(told.id, told), told, key=lambda one: one.place)
        for some in chunks(list(last.values()), PAGE):
            await self._heal({each.id: each for each in some})
            self._report(Progress(self.sums, len(last)))
        for some_told in chunks(list(schedules.values()), PAGE):
            await self._wait(await self._restoring.ask([told.id for told in some_told]))
            await self._schedules.heal(some_told)
        if self._applies and not self.sums.left:
            await self._note_healed([gap.number for gap in gaps])
        return self.sums

    async def _check_kept(self, gaps: Sequence[Any]) -> None:
        """Raises NotBegun if the events of a failover were not kept. Those of adds and ends are enough."""
        known = await kept(self._reading)
        for gap in gaps:
            since, until = gap.from_ms * 1000, (gap.to_ms + 1) * 1000
            for each in choices.unkept(choices.of_shard(known, gap.shard), since, until):
                if each.events == "none":
                    raise NotBegun(f"{each.words}: what was forgotten of that time is not known")

    async def _wait(self, asked: Sequence[Asked]) -> None:
        if not self._stale:
            await self._passing.wait(asked)

    async def _gaps(self) -> Sequence[Any]:
        """The gaps of failovers that were not healed."""
        wanted = select(
            _GAP.number, _GAP.shard, _GAP.epoch, _GAP.from_ms, _GAP.from_seq, _GAP.to_ms, _GAP.to_seq
        ).where(
            *(self._reading.of_source(tables.gap), text(has_gone_back(tables.gap.name)), _GAP.walked.is_(None)),
        )
        return await self._reading.rows(wanted.order_by(_GAP.number))

    async def _events(self, gap: Any) -> list[_Last]:
        """The events of jobs that a failover forgot: those recorded before it."""
        columns = (_EVENT.id, _EVENT.life, _EVENT.state_after, _EVENT.verb, _EVENT.lease)
        told = select(*columns, _EVENT.ms, _EVENT.seq, _EVENT.n).where(
            self._is_in(gap), _EVENT.id != "", _EVENT.life > 0
        )
        rows, until = await self._reading.rows(told), (gap.to_ms, gap.to_seq)
        return [
            _Last(row.id, row.life, row.state_after, row.verb, row.lease, (row.ms, row.seq, row.n), until)
            for row in rows
        ]

    async def _of_schedules(self, gap: Any) -> list[LastTold]:
        columns = (_EVENT.id, _EVENT.verb, _EVENT.at, _EVENT.ms, _EVENT.seq, _EVENT.n)
        rows = await self._reading.rows(select(*columns).where(self._is_in(gap), _EVENT.id > SCHEDULE))
        return [LastTold(row.id, row.verb, row.at, (row.ms, row.seq, row.n)) for row in rows]

    def _is_in(self, gap: Any) -> ColumnElement[bool]:
        """The condition that an event was recorded before a failover, which forgot it."""
        return and_(
            *(self._reading.of_source(tables.event), _EVENT.shard == gap.shard),
            *(_EVENT.ms >= gap.from_ms, _EVENT.ms <= gap.to_ms),
            or_(_EVENT.ms > gap.from_ms, _EVENT.seq > gap.from_seq),
            or_(_EVENT.ms < gap.to_ms, _EVENT.seq <= gap.to_seq),
            *(_EVENT.branch >= 0, _EVENT.branch < gap.epoch),
        )

    async def _heal(self, last: dict[str, _Last]) -> None:
        self.sums.counts["looked"] += len(last)
        asked = await self._restoring.ask(list(last))
        await self._wait(asked)
        unknown = {job_id for each in asked for job_id in each.unknown}
        rows, now_ms = await self._reading.jobs(list(last)), max(each.at for each in asked) // 1000
        gone = await self._end([last[job_id] for job_id in last if job_id not in unknown])
        await self._put([each for each in last.values() if each.id in unknown or each.id in gone], rows, now_ms)

    async def _end(self, known: Sequence[_Last]) -> set[str]:
        """End the lives that had ended; returns the ids whose older life was ended to make room for one that Redis
        lost."""
        lost: list[Lost] = []
        for each in known:
            found = await self._lost(each)
            if isinstance(found, Lost):
                lost.append(found)
            elif found == "older":
                self.sums.name("older", each.id)
            else:
                self.sums.counts[found] += 1
        results = await self._restoring.end(lost) if self._applies else ["ended"] * len(lost)
        gone: set[str] = set()
        for life, result in zip(lost, results, strict=True):
            self._judge(life, result)
            if result == "ended" and not life.end:
                gone.add(life.id)
        return gone

    def _judge(self, life: Lost, result: str | JobQueueError) -> None:
        if isinstance(result, JobQueueError):
            raise Stopped(result.message)
        word = {"ended": "ended_again", "reserved": "held", "other": "known"}[result]
        self.sums.counts[word] += 1

    async def _lost(self, last: _Last) -> Lost | str:
        """The life in Redis that must end, or a count of `Sums`."""
        job = await self._pool.get(last.id)
        if job is None or job.created > last.life:
            return "known"
        if job.created < last.life:
            return Lost(last.id, job.created, 0, 0) if last.state not in ENDED or job.state not in ENDED else "known"
        if job.state in ENDED:
            return "known"
        if last.state not in ENDED:
            return "known" if last.verb in _MADE_AGAIN else "older"
        return Lost(last.id, job.created, last.lease, last.state)

    async def _put(self, lost: Sequence[_Last], rows: dict[str, JobRow], now_ms: int) -> None:
        """Put what Redis does not have, if nothing was recorded of it since."""
        records: list[tuple[str, bytes]] = []
        for each in lost:
            row = rows.get(each.id)
            if row is None or row.place[:2] > each.until or (row.state in ENDED and row.next <= now_ms):
                self.sums.counts["ended"] += 1
                continue
            fate = fate_of(row, _AS_THEY_WERE, now_ms, 0)
            if fate.record:
                records.append((each.id, fate.record))
            else:
                self.sums.name(fate.counted, each.id)
        results = await self._restoring.put(records) if self._applies else [True] * len(records)
        for result in results:
            if isinstance(result, JobQueueError):
                raise Stopped(result.message)
            self.sums.counts["put" if result else "known"] += 1

    async def _note_healed(self, numbers: Sequence[int]) -> None:
        now_us = await self._pool.now_us()
        await self._reading.run(update(tables.gap).where(_GAP.number.in_(numbers)).values(walked=now_us))
