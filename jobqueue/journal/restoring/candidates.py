"""The jobs that a run considers, page by page: by what the journal knows when they are listed, or, for an earlier time,
by their events.

Gaps are what the journal does not know: events that were lost before the journal read them, and that no walk has made
up for yet.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from sqlalchemy import Select, and_, func, or_, select

from buckets.events.restoring import PAGE
from buckets.job import LIVE, State, Verb
from buckets.pages import chunks
from buckets.topics.within import reaches
from jobqueue.journal import choices, tables
from jobqueue.journal.reading.verdict import LOST, UNKNOWN
from jobqueue.journal.restoring.reading import ENDED, PENDING, Choice, JobRow, NotBegun, Reading, kept

Cursor = dict[str, Any]
"""A place in a listing, as it is stored with the run."""
_LISTED = 5_000  # jobs per query
_JOB = tables.job.c
_OVERDUE = (State.READY, State.DELAYED)


class Candidate(NamedTuple):
    """A job that may come back."""

    id: str
    place: tuple[int, int, int]
    """The place of its last event."""
    share: float
    """Its position among the overdue jobs of its topic: 0 for the first, 1 for one after the last."""


class Page(NamedTuple):
    """Up to `PAGE` candidates."""

    candidates: list[Candidate]
    behind: Cursor
    """Where the next page begins."""
    strangers: Sequence[str] = ()
    """Ids that the journal does not have."""


class Listing:
    """The jobs of a choice, state by state: tombstones, then reserved, ready, delayed and dead jobs; in a state by
    topic, and in a topic in the order of their time. `now_ms`: by Redis's clock."""

    def __init__(self, reading: Reading, choice: Choice, now_ms: int) -> None:
        self._reading = reading
        self._choice = choice
        self._now_ms = now_ms
        self._begun_ms = now_ms
        live = [state for state in (State.RESERVED, State.READY, State.DELAYED, State.DEAD) if state in choice.states]
        self._states = [*ENDED, *live]

    async def total(self) -> int:
        """How many jobs there are."""
        total = 0
        async for topic in self._topics():
            for state in self._states:
                total += await self._count(topic, state)
        return total

    async def pages(self, cursor: Cursor | None = None) -> AsyncIterator[Page]:
        """The pages after a cursor, or all pages without one."""
        self._begun_ms = cursor["begun"] if cursor else self._now_ms
        for state in self._states:
            if cursor and self._states.index(cursor["state"]) > self._states.index(state):
                continue
            own = cursor if cursor and cursor["state"] == state else None
            async for topic in self._topics(own["topic"] if own else None):
                start = {"state": int(state), "topic": topic, "next": -1, "id": "", "rank": 0, "reached": None}
                here = own if own and own["topic"] == topic else start
                async for page in self._of(state, topic, here):
                    yield page

    async def _topics(self, first: str | None = None) -> AsyncIterator[str]:
        """The topics of the choice, from `first` on. They are queried one at a time, because a query for all would read
        all jobs."""
        condition = _JOB.topic >= first if first is not None else _JOB.topic > ""
        while True:
            rows = await self._reading.rows(
                select(func.min(_JOB.topic)).where(self._reading.of_source(tables.job), condition)
            )
            topic = rows[0][0]
            if topic is None:
                return
            if reaches(self._choice.topics, topic):
                yield topic
            condition = _JOB.topic > topic

    def _in(self, state: State, topic: str) -> Any:
        condition = and_(self._reading.of_source(tables.job), _JOB.topic == topic, _JOB.state == int(state))
        return and_(condition, _JOB.next > self._now_ms) if state in ENDED else condition

    async def _count(self, topic: str, state: State, *conditions: Any) -> int:
        counted = select(func.count()).select_from(tables.job).where(self._in(state, topic), *conditions)
        return int((await self._reading.rows(counted))[0][0])

    async def _of(self, state: State, topic: str, at: Cursor) -> AsyncIterator[Page]:
        """The pages of a topic's jobs in a state. Jobs with the same time that are read together are in the order of
        their last events. A cursor within such a group has the time and id of the last job before the group, and in
        `reached` how far the group was paged."""
        before, overdue = await self._overdue(state, topic)
        while rows := await self._behind(state, topic, at["next"], at["id"]):
            last, rank = rows[-1], at["rank"]
            at = {**at, "begun": self._begun_ms}
            end = {**at, "next": last.next, "id": last.id, "rank": rank + len(rows), "reached": None}
            in_order = sorted((row for row in rows if not self._is_passed(row, at["reached"])), key=_order)
            first_rank = rank + len(rows) - len(in_order)
            for first in range(0, len(in_order), PAGE):
                some = in_order[first : first + PAGE]
                shares = [(before + first_rank + first + n) / overdue if overdue else 0.0 for n in range(len(some))]
                is_last = first + PAGE >= len(in_order)
                yield Page(_candidates(some, shares), end if is_last else {**at, "reached": _order(some[-1])})
            at = end
            if len(rows) < _LISTED:
                return

    def _is_passed(self, row: Any, reached: Sequence[int] | None) -> bool:
        """Returns True if a row was in an earlier page: it is not after `reached`, or only because it got an event
        after the run began, as jobs that come back do."""
        if reached is None:
            return False
        return _order(row) <= tuple(reached) or (row.next == reached[0] and row.ms >= self._begun_ms)

    async def _overdue(self, state: State, topic: str) -> tuple[int, int]:
        """How many overdue jobs of a topic come before those of a state, and how many the topic has."""
        if not self._choice.spread_s or state not in _OVERDUE:
            return 0, 0
        each = [
            await self._count(topic, one, _JOB.next <= self._now_ms) if one in self._states else 0 for one in _OVERDUE
        ]
        return sum(each[: _OVERDUE.index(state)]), sum(each)

    async def _behind(self, state: State, topic: str, after: int, job_id: str) -> list[Any]:
        """Up to `_LISTED` jobs after one, by time and id: those with the same time, then later ones. A single query
        would read many jobs with the same time from the first one on, for each page."""
        rows = list(await self._reading.rows(self._some(state, topic, _JOB.next == after, _JOB.id > job_id)))
        if len(rows) < _LISTED:
            rows += (await self._reading.rows(self._some(state, topic, _JOB.next > after)))[: _LISTED - len(rows)]
        return rows

    def _some(self, state: State, topic: str, *conditions: Any) -> Select[Any]:
        columns = (_JOB.id, _JOB.next, _JOB.ms, _JOB.seq, _JOB.n)
        wanted = select(*columns).where(self._in(state, topic), *conditions)
        return wanted.order_by(_JOB.next, _JOB.id).limit(_LISTED)


class Named:
    """The jobs of a choice that names their ids."""

    def __init__(self, reading: Reading, ids: Sequence[str]) -> None:
        self._reading = reading
        self._ids = list(dict.fromkeys(ids))

    async def total(self) -> int:
        return len(self._ids)

    async def pages(self, cursor: Cursor | None = None) -> AsyncIterator[Page]:
        done = cursor["done"] if cursor else 0
        for ids in chunks(self._ids[done:], PAGE):
            rows = await self._reading.jobs(ids)
            found = [
                Candidate(job_id, rows[job_id].place, (done + n) / len(self._ids))
                for n, job_id in enumerate(ids)
                if job_id in rows
            ]
            done += len(ids)
            yield Page(found, {"done": done}, [job_id for job_id in ids if job_id not in rows])


def _order(row: Any) -> tuple[int, int, int, int]:
    return row.next, row.ms, row.seq, row.n


def _candidates(rows: Sequence[Any], shares: Sequence[float]) -> list[Candidate]:
    return [Candidate(row.id, (row.ms, row.seq, row.n), share) for row, share in zip(rows, shares, strict=True)]


_ASKED = 500  # jobs whose events one query reads
_EVENT = tables.event.c
_GAP = tables.gap.c
_TOLD = ("state_after", "due", "next", "priority", "cause", "attempts", "deliveries", "lease")


async def check(reading: Reading, as_of: int) -> None:
    """Raises NotBegun when the events do not go back to a time (us since the epoch)."""
    await _check_kept(reading, as_of)
    first = (await reading.rows(select(func.min(_EVENT.ms)).where(reading.of_source(tables.event))))[0][0]
    since_then = select(func.min(tables.position.c.since)).where(reading.of_source(tables.position))
    begun = (await reading.rows(since_then))[0][0]
    if first is None or begun is None:
        raise NotBegun("the journal keeps no events, so that no earlier time can be restored")
    since = max(int(begun), int(first) * 1000)
    if as_of < since:
        raise NotBegun(f"the journal's events go back to {_time(since)}, not to {_time(as_of)}")


async def _check_kept(reading: Reading, as_of: int) -> None:
    """Raises NotBegun unless all events are kept from that time on, and a walk had already read what was not kept
    before."""
    for each in choices.unkept(await kept(reading)):
        if each.until is None:
            raise NotBegun(f"{each.words}: no earlier time can be restored")
        walked = select(func.min(_GAP.walked)).where(
            reading.of_source(tables.gap), _GAP.shard == each.shard, _GAP.found >= each.until, _GAP.kind == UNKNOWN
        )
        whole = (await reading.rows(walked))[0][0]
        if whole is None or as_of < whole:
            since = "" if whole is None else f", and jobs are known again since {_time(whole)}"
            raise NotBegun(f"{each.words}{since}: {_time(as_of)} cannot be restored")


def _time(us: int) -> str:
    return datetime.fromtimestamp(us / 1e6, UTC).isoformat(timespec="milliseconds")


class Past:
    """The jobs of a choice that lived at its time. Jobs that are read together are in the order of their states, then
    of their times."""

    def __init__(self, reading: Reading, choice: Choice, as_of: int) -> None:
        self._reading = reading
        self._choice = choice
        self._as_of = as_of

    def _lived(self) -> Any:
        """The condition that a job may have lived then."""
        return and_(self._reading.of_source(tables.job), or_(_JOB.ended.is_(None), _JOB.ended > self._as_of))

    async def total(self) -> int:
        """How many there are at most."""
        counted = select(func.count()).select_from(tables.job).where(self._lived())
        return int((await self._reading.rows(counted))[0][0])

    async def pages(self, cursor: Cursor | None = None) -> AsyncIterator[Page]:
        after = cursor or {"after": ""}
        while rows := await self._reading.rows(self._behind(after["after"])):
            end = {"after": rows[-1].id}
            found = await self._living(rows)
            for some in chunks(found, PAGE):
                after = end if some[-1] is found[-1] else after
                yield Page([Candidate(row.id, (row.ms, row.seq, row.n), 0.0) for row in some], after)
            after = end
            if len(rows) < _LISTED:
                return

    def _behind(self, job_id: str) -> Select[Any]:
        columns = (_JOB.id, _JOB.topic, _JOB.ms, _JOB.seq, _JOB.n)
        return select(*columns).where(self._lived(), _JOB.id > job_id).order_by(_JOB.id).limit(_LISTED)

    async def _living(self, rows: Sequence[Any]) -> list[Any]:
        told = await self._told([row.id for row in rows if reaches(self._choice.topics, row.topic)])
        order = {int(state): place for place, state in enumerate((*PENDING, State.DEAD))}
        living = [row for row in rows if row.id in told and told[row.id].state_after in self._choice.states]
        return sorted(living, key=lambda row: (order[told[row.id].state_after], told[row.id].next))

    async def _told(self, ids: Sequence[str]) -> dict[str, Any]:
        """The last event of each job until the time of the choice."""
        last: dict[str, Any] = {}
        names = ("id", "life", "topic", "at", "ms", "seq", "n", *_TOLD)
        for some in chunks(ids, _ASKED):
            wanted = select(*(_EVENT[name] for name in names)).where(
                self._reading.of_source(tables.event), _EVENT.id.in_(some), _EVENT.at <= self._as_of
            )
            for row in await self._reading.rows(wanted):
                if row.id not in last or _order_of_event(row) > _order_of_event(last[row.id]):
                    last[row.id] = row
        return last

    async def then(self, rows: dict[str, JobRow]) -> dict[str, JobRow | str]:
        """By id, each job's row as it was at `as_of`, or the name of the count in `Sums` that says why the job does not
        come back."""
        lived = {row.id: row for row in rows.values() if row.ended is None or row.ended > self._as_of}
        told, since = await self._told(list(lived)), await self._since(list(lived))
        return {
            row.id: _then(row, told[row.id], since.get((row.id, told[row.id].life), set()))
            for row in lived.values()
            if row.id in told
        }

    async def _since(self, ids: Sequence[str]) -> dict[tuple[str, int], set[str]]:
        """By id and life, what has happened since then that matters: `changed`, `ended`."""
        wanted = select(_EVENT.id, _EVENT.life, _EVENT.verb).where(
            *(self._reading.of_source(tables.event), _EVENT.id.in_(ids), _EVENT.at > self._as_of),
            or_(_EVENT.verb == int(Verb.REWRITE), _EVENT.state_after == int(State.FINISHED)),
        )
        found: dict[tuple[str, int], set[str]] = {}
        for row in await self._reading.rows(wanted):
            found.setdefault((row.id, row.life), set()).add("changed" if row.verb == Verb.REWRITE else "ended")
        return found


def _order_of_event(row: Any) -> tuple[int, int, int, int]:
    return row.at, row.ms, row.seq, row.n


def _then(row: JobRow, told: Any, since: set[str]) -> JobRow | str:
    if told.state_after not in LIVE:
        return "absent"
    if "ended" in since or (row.life == told.life and row.state == State.FINISHED):
        return "ended"
    if row.life != told.life:
        return "without_body"  # the body that is kept is of another life
    if "changed" in since:
        return "changed"
    was = {name: getattr(told, name) for name in _TOLD[1:]}
    return row._replace(**was, state=told.state_after, step=min(row.step, told.deliveries))


class Gaps:
    """The end of the newest open gap in each shard. Created by `read`."""

    def __init__(self, ends: dict[int, tuple[int, int]]) -> None:
        self._ends = ends

    @classmethod
    async def read(cls, reading: Reading) -> Gaps:
        open_ones = select(_GAP.shard, _GAP.to_ms, _GAP.to_seq).where(
            reading.of_source(tables.gap), _GAP.kind == LOST, _GAP.walked.is_(None)
        )
        ends: dict[int, tuple[int, int]] = {}
        for shard, ms, seq in await reading.rows(open_ones):
            ends[shard] = max((ms, seq), ends.get(shard, (0, 0)))
        return cls(ends)

    def hide(self, row: Any) -> bool:
        """Returns True if a job or a schedule may have ended in a gap: it has no event after the gap."""
        return (row.ms, row.seq) <= self._ends.get(row.shard, (-1, -1))
