"""Which jobs come into question, page by page: by what the journal knows when they are listed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Select, and_, func, select

from buckets.events.restoring import PAGE
from buckets.job import State
from buckets.pages import chunks
from buckets.topics.within import reaches
from jobqueue.journal import tables
from jobqueue.journal.restoring.choice import ENDED, Choice
from jobqueue.journal.restoring.reading import Reading

Cursor = dict[str, Any]
"""A place in a listing, as it is kept with the run."""
_LISTED = 5_000  # jobs a query
_JOB = tables.job.c
_OVERDUE = (State.READY, State.DELAYED)


class Candidate(NamedTuple):
    """A job that comes into question."""

    id: str
    place: tuple[int, int, int]
    """Of what was last told of it."""
    share: float
    """Its place among the overdue jobs of its topic: 0 of the first, 1 behind the last."""


class Page(NamedTuple):
    """Up to PAGE of them."""

    candidates: list[Candidate]
    behind: Cursor
    """Where the next page begins."""
    strangers: Sequence[str] = ()
    """Ids that the journal does not have."""


class Listing:
    """The jobs of a choice, each state by itself: tombstones, then reserved, ready, delayed and dead ones; within a
    topic in the order of their time. `now_ms`: by Redis's clock."""

    def __init__(self, reading: Reading, choice: Choice, now_ms: int) -> None:
        self._reading = reading
        self._choice = choice
        self._now_ms = now_ms
        self._begun_ms = now_ms
        live = [state for state in (State.RESERVED, State.READY, State.DELAYED, State.DEAD) if state in choice.states]
        self._states = [*ENDED, *live]

    async def total(self) -> int:
        """How many there are."""
        total = 0
        async for topic in self._topics():
            for state in self._states:
                total += await self._count(topic, state)
        return total

    async def pages(self, cursor: Cursor | None = None) -> AsyncIterator[Page]:
        """The pages behind a cursor, or all of them."""
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
        """The topics that are asked for, from the first on. One at a time: a query of all would read all jobs."""
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
        """The pages of a topic's jobs in a state. Jobs of one time that are read together come in the order in which
        they were told of; a cursor among them has the place that was `reached`, behind the last of them by time and
        id."""
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
        """Whether a row is before the place that was reached, or was told of since the run began, as what comes back
        is, and stands behind it only for that."""
        if reached is None:
            return False
        return _order(row) <= tuple(reached) or (row.next == reached[0] and row.ms >= self._begun_ms)

    async def _overdue(self, state: State, topic: str) -> tuple[int, int]:
        """How many overdue jobs of a topic come before those of a state, and how many there are."""
        if not self._choice.spread_s or state not in _OVERDUE:
            return 0, 0
        each = [
            await self._count(topic, one, _JOB.next <= self._now_ms) if one in self._states else 0 for one in _OVERDUE
        ]
        return sum(each[: _OVERDUE.index(state)]), sum(each)

    async def _behind(self, state: State, topic: str, after: int, job_id: str) -> list[Any]:
        """Up to _LISTED jobs behind one, by time and id: those of its time, then later ones. In one query, many jobs of
        one time would be read from the first one on, for each page."""
        rows = list(await self._reading.rows(self._some(state, topic, _JOB.next == after, _JOB.id > job_id)))
        if len(rows) < _LISTED:
            rows += (await self._reading.rows(self._some(state, topic, _JOB.next > after)))[: _LISTED - len(rows)]
        return rows

    def _some(self, state: State, topic: str, *conditions: Any) -> Select[Any]:
        columns = (_JOB.id, _JOB.next, _JOB.ms, _JOB.seq, _JOB.n)
        wanted = select(*columns).where(self._in(state, topic), *conditions)
        return wanted.order_by(_JOB.next, _JOB.id).limit(_LISTED)


class Named:
    """The jobs of a choice by their ids, those that the journal has."""

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
