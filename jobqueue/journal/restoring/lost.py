"""Schedules and tokens that come back: those that are live according to the journal, and of which Redis has no record.

Schedules come back after the jobs, so that the jobs which a schedule has made exist when it continues. The id of a
schedule is `~` and its name here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple

from sqlalchemy import and_, func, select

from buckets.access import Entry, Stored, Tokens
from buckets.events.restoring import PAGE, LostSchedule, Restoring
from buckets.job import LIVE
from buckets.layout import SCHEDULE
from buckets.schedules.record import Schedule, pack_schedule
from buckets.shards import Shards
from buckets.topics.within import reaches
from jobqueue.access.tokens import Record, from_json
from jobqueue.journal import tables
from jobqueue.journal.reading.tokens import may_miss
from jobqueue.journal.restoring.candidates import Candidate, Cursor, Gaps, Page
from jobqueue.journal.restoring.fates import Fate
from jobqueue.journal.restoring.reading import LEFT, Reading, Stopped, Sums
from jobqueue.journal.restoring.runs import Passing, Run

_SCHEDULE, _JOB = tables.schedule.c, tables.job.c
_MOST_OCCURRENCES = 1_000  # of a schedule, the newest ones
_NAMES = "schedules"  # the key that a cursor among schedules has


class ScheduleRow(NamedTuple):
    """A row of `jq_schedule`; its columns are described in tables.py."""

    source: str
    name: str
    shard: int
    topic: str
    revision: int
    start: int
    next: int
    last: int
    definition: str
    body_kept: int
    ms: int
    seq: int
    n: int
    at: int
    gone: int | None

    @property
    def place(self) -> tuple[int, int, int]:
        """The place of the last event."""
        return self.ms, self.seq, self.n


_COLUMNS = [tables.schedule.c[name] for name in ScheduleRow._fields]


def is_schedule(some_id: str) -> bool:
    """Whether an id belongs to a schedule."""
    return some_id.startswith(SCHEDULE)


class LostSchedules:
    """Schedules that are live according to the journal. `topics`: patterns for their topics."""

    def __init__(self, reading: Reading, topics: str, gaps: Gaps) -> None:
        self._reading, self._topics, self._gaps = reading, topics, gaps

    async def total(self) -> int:
        """How many there are at most."""
        counted = select(func.count()).select_from(tables.schedule).where(self._live())
        return int((await self._reading.rows(counted))[0][0])

    def _live(self) -> Any:
        return and_(self._reading.of_source(tables.schedule), _SCHEDULE.gone.is_(None))

    async def pages(self, cursor: Cursor | None) -> AsyncIterator[Page]:
        """The pages after a cursor, or all pages without one."""
        after = cursor.get(_NAMES, "") if cursor else ""
        while True:
            some = select(*_COLUMNS).where(self._live(), _SCHEDULE.name > after).order_by(_SCHEDULE.name).limit(PAGE)
            rows = [ScheduleRow(*row) for row in await self._reading.rows(some)]
            if not rows:
                return
            after = rows[-1].name
            wanted = [row for row in rows if reaches(self._topics, row.topic)]
            yield Page([Candidate(f"{SCHEDULE}{row.name}", row.place, 0.0) for row in wanted], {_NAMES: after})

    async def fates(self, wanted: Sequence[Candidate]) -> dict[str, Fate]:
        """What becomes of schedules that Redis did not know, by id. Their rows are read again."""
        rows = await schedule_rows(self._reading, [each.id.removeprefix(SCHEDULE) for each in wanted])
        return {each.id: self._fate(rows.get(each.id.removeprefix(SCHEDULE))) for each in wanted}

    def _fate(self, row: ScheduleRow | None) -> Fate:
        if row is None or row.gone is not None:
            return Fate("ended")
        return Fate("unsure") if self._gaps.hide(row) else fate_of_schedule(row)

    async def lost(self, fates: dict[str, Fate]) -> list[LostSchedule]:
        """The schedules that come back, with their live occurrences."""
        names = {some_id.removeprefix(SCHEDULE): fate.record for some_id, fate in fates.items()}
        return [
            LostSchedule(name, record, occurrences=await live_occurrences(self._reading, name))
            for name, record in names.items()
        ]


def is_among(cursor: Cursor | None) -> bool:
    """Whether a cursor is a place among the schedules, which come after all jobs."""
    return cursor is not None and _NAMES in cursor


def fate_of_schedule(row: ScheduleRow) -> Fate:
    """What becomes of a schedule that is live according to the journal."""
    if not row.body_kept:
        return Fate("without_body")
    if not row.topic:
        return Fate("unreadable")
    definition = row.definition.encode()
    times = (row.revision, row.start, row.next, row.last)
    return Fate("schedules", pack_schedule(Schedule(row.name, 0, *times, definition)))


async def schedule_rows(reading: Reading, names: Sequence[str]) -> dict[str, ScheduleRow]:
    """The rows of schedules, by name."""
    wanted = select(*_COLUMNS).where(reading.of_source(tables.schedule), _SCHEDULE.name.in_(names))
    return {row.name: ScheduleRow(*row) for row in await reading.rows(wanted)}


async def live_occurrences(reading: Reading, name: str) -> list[str]:
    """For each occurrence that is live according to the journal, the part of its id after the name and `@`."""
    first, behind = f"{name}@", f"{name}A"  # `A` follows `@`
    of_it = and_(reading.of_source(tables.job), _JOB.id > first, _JOB.id < behind)
    live = select(_JOB.id).where(of_it, _JOB.state.in_([int(state) for state in LIVE]))
    rows = await reading.rows(live.order_by(_JOB.id.desc()).limit(_MOST_OCCURRENCES))
    ends = [row.id.removeprefix(first) for row in rows]
    return [end for end in ends if end.partition("@")[0].isdecimal()]


_TRIES = 50
_TOKEN, _POSITION = tables.token.c, tables.position.c


async def bring_back_tokens(
    reading: Reading, shards: Shards, run: Run | None, sums: Sums, *, stale: bool = False
) -> None:
    """Bring back tokens. `run`: None to only report; `stale`: True to skip waiting for the journal. Raises NotBegun,
    Stopped, and JobQueueError."""
    # Tokens are read with shard 0. If its events are off, nobody reads tokens, so those in the journal are older.
    asked = [each for each in await Restoring(shards, "").ask(()) if each.shard == 0 and each.stream]
    if not stale:
        await Passing(reading).begin(asked)
    lost = _LostTokens(await _token_rows(reading), await _looked_until(reading))
    tokens = Tokens(shards)
    for _ in range(_TRIES):
        stored = await tokens.read()
        entries = lost.judge(stored)
        if run is None or await tokens.write(entries, seen=stored.version):
            lost.tell(sums)
            if run:
                await run.end(sums)
            return
    raise Stopped("others change tokens all the time")


async def _token_rows(reading: Reading) -> list[Any]:
    wanted = select(_TOKEN.id, _TOKEN.changed, _TOKEN.ended, _TOKEN.record)
    return list(await reading.rows(wanted.where(reading.of_source(tables.token)).order_by(_TOKEN.id)))


async def _looked_until(reading: Reading) -> int:
    """The time (us) until which the tokens were read, with shard 0."""
    until = select(_POSITION.time).where(reading.of_source(tables.position), _POSITION.shard == 0)
    return int(next(iter(await reading.rows(until)), (0,))[0])


class _LostTokens:
    """The tokens of a journal, judged by what Redis has. `until_us`: the time until which the journal has read them."""

    def __init__(self, rows: list[Any], until_us: int) -> None:
        self._token_rows, self._until_us = rows, until_us
        self._put: dict[str, str] = {}
        self._others: list[tuple[str, str]] = []

    def judge(self, stored: Stored) -> list[Entry]:
        """What must be written to Redis. Redis may have some of it already, from the last try."""
        now = stored.now_us / 1e6
        there = [record for raw in stored.records.values() if (record := from_json(raw)) and record.is_live(now)]
        taken = {word for record in there for word in _words(record)}
        before, self._put, self._others, entries = self._put, {}, [], list[Entry]()
        for row in self._token_rows:
            record = from_json(row.record.encode())
            if record and row.id in before and stored.records.get(row.id) == row.record.encode():
                self._put[row.id] = record.name
            elif record is None or (why := self._reason(row, record, stored, taken)):
                self._others.append(("unreadable" if record is None else why, row.id))
            else:
                self._put[row.id] = record.name
                taken |= _words(record)
                entries.append(Entry(row.id, row.changed, row.record.encode()))
        return entries

    def _reason(self, row: Any, record: Record, stored: Stored, taken: set[str]) -> str:
        """Why a token does not come back: a count of `Sums`; empty if it does come back."""
        if row.id in stored.records:
            return "known"
        if not record.is_live(stored.now_us / 1e6):
            return "over"
        if (row.ended is not None and row.ended <= stored.now_us) or may_miss(self._until_us, stored.now_us):
            return "unsure"
        return "taken" if taken & _words(record) else ""

    def tell(self, sums: Sums) -> None:
        """Add the last judgement to `sums`."""
        sums.counts["looked"] += len(self._token_rows)
        sums.counts["put"] += len(self._put)
        sums.tokens = self._put
        for why, token_id in self._others:
            if why in LEFT:
                sums.name(why, token_id)
            else:
                sums.counts[why] += 1


def _words(record: Record) -> set[str]:
    """What no two live tokens share: the name, and the name in a certificate."""
    return {f"name {record.name}"} | ({f"certificate {record.certificate}"} if record.certificate else set())
