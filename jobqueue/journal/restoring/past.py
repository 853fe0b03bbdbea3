"""Jobs as they were at an earlier time, by their events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Select, and_, func, or_, select

from buckets.events.restoring import PAGE
from buckets.job import LIVE, State, Verb
from buckets.pages import chunks
from buckets.topics.within import reaches
from jobqueue.journal import choices, tables
from jobqueue.journal.reading.verdict import UNKNOWN
from jobqueue.journal.restoring.choice import PENDING, Choice, NotBegun
from jobqueue.journal.restoring.listing import Candidate, Cursor, Page
from jobqueue.journal.restoring.reading import JobRow, Reading, kept

_LISTED = 5_000  # jobs a query
_ASKED = 500  # of whose events a query asks
_JOB, _EVENT, _GAP = tables.job.c, tables.event.c, tables.gap.c
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
    """Raises NotBegun unless all events are kept from that time on, and a walk had read before it what was not."""
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
    """The jobs of a choice that lived at its time, those of like state together, in the order of their time as far as
    they are read together."""

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
        """The last event of each job until then."""
        last: dict[str, Any] = {}
        names = ("id", "life", "topic", "at", "ms", "seq", "n", *_TOLD)
        for some in chunks(ids, _ASKED):
            wanted = select(*(_EVENT[name] for name in names)).where(
                self._reading.of_source(tables.event), _EVENT.id.in_(some), _EVENT.at <= self._as_of
            )
            for row in await self._reading.rows(wanted):
                if row.id not in last or _order(row) > _order(last[row.id]):
                    last[row.id] = row
        return last

    async def then(self, rows: dict[str, JobRow]) -> dict[str, JobRow | str]:
        """The jobs of these rows as they were; or why one does not come back, as a count of `Sums`."""
        lived = {row.id: row for row in rows.values() if row.ended is None or row.ended > self._as_of}
        told, since = await self._told(list(lived)), await self._since(list(lived))
        return {
            row.id: _then(row, told[row.id], since.get((row.id, told[row.id].life), set()))
            for row in lived.values()
            if row.id in told
        }

    async def _since(self, ids: Sequence[str]) -> dict[tuple[str, int], set[str]]:
        """By id and life, what happened since that matters: `changed`, `ended`."""
        wanted = select(_EVENT.id, _EVENT.life, _EVENT.verb).where(
            *(self._reading.of_source(tables.event), _EVENT.id.in_(ids), _EVENT.at > self._as_of),
            or_(_EVENT.verb == int(Verb.REWRITE), _EVENT.state_after == int(State.FINISHED)),
        )
        found: dict[tuple[str, int], set[str]] = {}
        for row in await self._reading.rows(wanted):
            found.setdefault((row.id, row.life), set()).add("changed" if row.verb == Verb.REWRITE else "ended")
        return found


def _order(row: Any) -> tuple[int, int, int, int]:
    return row.at, row.ms, row.seq, row.n


def _then(row: JobRow, told: Any, since: set[str]) -> JobRow | str:
    if told.state_after not in LIVE:
        return "absent"
    if "ended" in since or (row.life == told.life and row.state == State.FINISHED):
        return "ended"
    if row.life != told.life:
        return "without_body"  # that of another life is kept
    if "changed" in since:
        return "changed"
    was = {name: getattr(told, name) for name in _TOLD[1:]}
    return row._replace(**was, state=told.state_after, step=min(row.step, told.deliveries))
