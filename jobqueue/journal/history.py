"""Reads what a journal knows about a job, and about the time during which it waited."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy import Select, and_, case, func, select, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from buckets.events.stream import Tail, TailEvent
from buckets.job import Verb
from buckets.layout import SCHEDULE
from jobqueue.journal import choices, tables
from jobqueue.journal.choices import Change, has_gone_back, is_taken_back
from jobqueue.journal.explaining.timeline import Wait
from jobqueue.journal.explaining.told import FORGOTTEN, LOST, Gap, History, Meanwhile, Newest, Pause, Place, Told
from jobqueue.journal.rows import headers_of, words_of
from jobqueue.journal.store import Away
from jobqueue.journal.url import Refused

MOST_EVENTS = 10_000
"""How many events of a job are read; older ones are left out."""
_MOST_GAPS = 1000
_MOST_LIVES = 100  # how many of a job's newest lives are checked for having been made by a schedule
_MOST_PAUSES = 500  # of a topic in a shard, the newest ones
_MOST_COUNTED = 300_000  # events that may be read for one wait
_MOST_MINUTES = 1440  # of a wait; deliveries during a longer wait are not counted
_EXACT_MINUTES = 10
_LOOKED_BACK = (60, 1440)  # minutes to look back for the last delivery of a topic
_MINUTE_US = 60_000_000
_DELIVERED = (Verb.POP, Verb.TAKE)

_event, _job, _gap = tables.event.c, tables.job.c, tables.gap.c
_position, _minute = tables.position.c, tables.minute.c
_TOLD = [
    *(_event.ms, _event.seq, _event.n, _event.branch, _event.life, _event.topic, _event.verb),
    *(_event.state_before, _event.state_after, _event.at, _event.was, _event.due, _event.next),
    *(_event.priority, _event.cause, _event.attempts, _event.deliveries, _event.lease),
    *(_event.instance, _event.actor, _event.worker, _event.reason),
]
_NEWEST = [
    *(_job.life, _job.topic, _job.state, _job.priority, _job.cause, _job.due, _job.next, _job.tries),
    *(_job.attempts, _job.deliveries, _job.worker, _job.reason, _job.at, _job.ended, _job.options),
]


class Journal:
    """A journal, read for one source. Its methods raise Away if the database cannot be reached."""

    def __init__(self, engine: AsyncEngine, source: str) -> None:
        self._engine = engine
        self._source = source

    @asynccontextmanager
    async def _asking(self) -> AsyncIterator[AsyncConnection]:
        """A connection that sees what was written until now."""
        try:
            async with self._engine.connect() as connection:
                yield connection
        except (SQLAlchemyError, OSError) as error:
            raise Away(str(getattr(error, "orig", None) or error)) from error

    async def close(self) -> None:
        """Close the connections."""
        await self._engine.dispose()

    async def position(self, shard: int) -> Place | None:
        """The last entry of a shard that is in SQL; None if there is none."""
        query = select(_position.ms, _position.seq).where(_position.source == self._source, _position.shard == shard)
        async with self._asking() as connection:
            row = (await connection.execute(query)).first()
        return None if row is None else (row.ms, row.seq)

    async def history(self, job_id: str, shard: int | None = None) -> History:
        """What SQL has about a job. `shard`: the job's shard, or None for the one that its events name."""
        async with self._asking() as connection:
            rows = (await connection.execute(self._events_of(job_id))).all()
            newest = (await connection.execute(self._newest_of(job_id))).first()
            if shard is None:
                shard = rows[0].shard if rows else newest.shard if newest else None
            events = sorted((Told(*row[1:]) for row in rows[:MOST_EVENTS]), key=lambda told: told.order)
            return History(
                events,
                [] if shard is None else await self._gaps(connection, _gap.shard == shard),
                Newest(*(*newest[1:-1], headers_of(newest.options))) if newest else None,
                *await self._bounds(connection, shard),
                is_cut=len(rows) > MOST_EVENTS,
                shard=shard,
                is_kept=bool(rows),
                unkept=choices.unkept(await self._choices(connection, shard)),
                occurred=await self._occurred(connection, job_id, events),
            )

    async def _occurred(self, connection: AsyncConnection, job_id: str, events: Sequence[Told]) -> dict[Place, str]:
        """The entries in which a schedule made the job, each with the name of the schedule."""
        name = job_id.partition("@")[0]
        added = [event.ms for event in events if event.verb == Verb.ADD]
        if name == job_id or not added:
            return {}
        query = select(_event.ms, _event.seq).where(
            *(_event.id == f"{SCHEDULE}{name}", _event.ms.in_(added[-_MOST_LIVES:])),
            *(_event.source == self._source, _event.verb == int(Verb.OCCUR)),
        )
        return dict.fromkeys(((row.ms, row.seq) for row in await connection.execute(query)), name)

    async def _choices(self, connection: AsyncConnection, shard: int | None) -> list[Change]:
        known = choices.changes(await connection.execute(choices.query(self._source)))
        return known if shard is None else choices.of_shard(known, shard)

    def _events_of(self, job_id: str) -> Select[Any]:
        return (
            select(_event.shard, *_TOLD)
            .where(_event.id == job_id, _event.source == self._source)
            .order_by(_event.ms.desc(), _event.seq.desc(), _event.n.desc())
            .limit(MOST_EVENTS + 1)
        )

    def _newest_of(self, job_id: str) -> Select[Any]:
        return select(_job.shard, *_NEWEST).where(_job.source == self._source, _job.id == job_id)

    async def _gaps(self, connection: AsyncConnection, which: Any) -> list[Gap]:
        went_back = case((text(has_gone_back(tables.gap.name)), 1), else_=0).label("went_back")
        query = (
            select(tables.gap, went_back)
            .where(_gap.source == self._source, which)
            .order_by(_gap.number.desc())
            .limit(_MOST_GAPS)
        )
        return [
            Gap(
                *(row.kind, row.epoch, (row.from_ms, row.from_seq), (row.to_ms, row.to_seq), row.entries, row.found),
                is_emptied=row.kind == FORGOTTEN and not row.went_back,
            )
            for row in await connection.execute(query)
        ]

    async def _bounds(self, connection: AsyncConnection, shard: int | None) -> tuple[int | None, int | None]:
        """The times from which and until which the journal covers a shard (None for all shards), in us. The events that
        it still keeps may begin later than the journal itself did."""
        which = [_position.source == self._source] + ([] if shard is None else [_position.shard == shard])
        query = select(func.min(_position.since), func.min(_position.time)).where(*which)
        since, until = (await connection.execute(query)).one()
        if since is None:
            return None, None
        oldest = (await connection.execute(select(func.min(_event.ms)))).scalar()
        first = (await connection.execute(select(func.min(_event.at)).where(_event.ms == oldest))).scalar()
        return max(since, first or 0), until

    async def meanwhile(self, wait: Wait, history: History) -> Meanwhile:
        """What is known about a wait of the job with this history."""
        found = Meanwhile(wait.begin, wait.end)
        async with self._asking() as connection:
            since, until = await self._bounds(connection, None)
            if since is None or until is None:
                return found
            is_all = since // 1000 <= wait.begin // 1000
            found.is_gap = bool(await self._gaps(connection, _overlaps(wait)))
            if history.is_kept and history.shard is not None:
                pauses = await self._pauses(connection, wait, history)
                is_known = is_all and not any(each.events == "none" for each in history.unkept)
                found.pauses = pauses if pauses or is_known else None
            end = min(wait.end, until)
            if is_all and wait.begin < end:
                found.known_until = end if end < wait.end else None
                await self._count(connection, wait, end, found)
        return found

    async def _pauses(self, connection: AsyncConnection, wait: Wait, history: History) -> list[Pause]:
        query = (
            select(_event.ms, _event.seq, _event.at, _event.verb, _event.was)
            .where(_event.id == "", _event.source == self._source, _event.shard == history.shard)
            .where(_event.topic == wait.topic, _event.ms <= wait.end // 1000)
            .where(text(f"NOT {is_taken_back(tables.event.name)}"))
            .order_by(_event.ms.desc(), _event.seq.desc())
            .limit(_MOST_PAUSES)
        )
        told = [((ms, seq), rest) for ms, seq, *rest in await connection.execute(query)]
        # A Redis that was emptied has no pauses. How long after its last entry it was emptied is not known.
        told += [(gap.end, [gap.end[0] * 1000, Verb.RESUME, 0]) for gap in history.gaps if gap.is_emptied]
        in_order = (each for _, each in sorted(told, key=lambda one: one[0]))
        return [pause for pause in pauses_of(in_order) if _is_in(pause, wait)]

    async def _count(self, connection: AsyncConnection, wait: Wait, end: int, found: Meanwhile) -> None:
        """Count the deliveries until `end`: first by minutes, which cost little and are kept longest; then job by job,
        if there are not too many."""
        own = int(wait.place is not None and end == wait.end)
        minutes = list(range(wait.begin // _MINUTE_US, end // _MINUTE_US + 1))
        if len(minutes) > _MOST_MINUTES:
            return
        by_minute = await self._deliveries(connection, wait.topic, minutes)
        total = sum(by_minute.values())
        if total <= own:
            found.delivered = 0
            return
        if len(minutes) <= _EXACT_MINUTES and await self._count_each(connection, wait, end, total, minutes, found):
            return
        whole = sum(count for minute, count in by_minute.items() if minute not in (minutes[0], minutes[-1]))
        if whole:
            found.delivered, found.is_least, found.of_any_priority = whole, True, True

    async def _deliveries(self, connection: AsyncConnection, topic: str, minutes: Sequence[int]) -> dict[int, int]:
        """How many jobs of a topic were delivered, by minute. The query lists the minutes, because a range of minutes
        would be read for all topics."""
        query = (
            select(_minute.minute, func.sum(_minute.events))
            .where(_minute.minute.in_(minutes), _minute.source == self._source, _minute.topic == topic)
            .where(_minute.verb.in_(_DELIVERED))
            .group_by(_minute.minute)
        )
        return {minute: int(count) for minute, count in await connection.execute(query)}

    async def _count_each(
        self, connection: AsyncConnection, wait: Wait, end: int, total: int, minutes: Sequence[int], found: Meanwhile
    ) -> bool:
        """Count the jobs that were delivered before the waiting one. Returns False if there are too many events to
        count. If not all events are kept, the sums by minute count more deliveries than the events show."""
        first, last = minutes[0] * _MINUTE_US, (minutes[-1] + 1) * _MINUTE_US
        cost = await self._events_in(connection, minutes)
        if cost > _MOST_COUNTED:
            first, last = wait.begin, end
            if cost * (last - first) > _MOST_COUNTED * len(minutes) * _MINUTE_US:
                return False
        inside = and_(_event.at >= wait.begin, _event.at < end)
        query = select(
            func.count(),
            func.sum(case((inside, 1), else_=0)),
            func.sum(case((and_(inside, _event.priority >= wait.priority), 1), else_=0)),
        ).where(
            *(_event.ms >= first // 1000, _event.ms < last // 1000 + 1, _event.source == self._source),
            *(_event.topic == wait.topic, _event.verb.in_(_DELIVERED), _event.branch >= 0),
        )
        told, within, before = (int(each or 0) for each in (await connection.execute(query)).one())
        if not within:
            found.delivered = 0 if told >= total else None
            return True
        found.delivered, found.of_any_priority = before or within, not before
        found.is_least = told < total
        return True

    async def _events_in(self, connection: AsyncConnection, minutes: Sequence[int]) -> int:
        """How many events these minutes have."""
        query = select(func.sum(_minute.events)).where(_minute.minute.in_(minutes), _minute.source == self._source)
        return int((await connection.execute(query)).scalar() or 0)

    async def last_delivery(self, topic: str, now_us: int) -> int | None:
        """The start, in us, of the last minute in which a job of the topic was delivered, or None if none was delivered
        in the last day."""
        now = now_us // _MINUTE_US
        async with self._asking() as connection:
            for back in _LOOKED_BACK:
                found = await self._deliveries(connection, topic, range(now - back, now + 1))
                if found:
                    return max(found) * _MINUTE_US
        return None


async def source_of(engine: AsyncEngine, given: str | None) -> str:
    """The source to read: the given one, or the only one. Raises Refused, Away."""
    try:
        async with engine.connect() as connection:
            found = await connection.execute(select(_position.source).distinct().order_by(_position.source))
            sources: list[str] = list(found.scalars())
    except (SQLAlchemyError, OSError) as error:
        raise Away(str(getattr(error, "orig", None) or error)) from error
    if given is not None and given not in sources:
        raise Refused(f"the journal has no source {given}; it has {', '.join(sources) or 'none'}")
    if given is None and len(sources) != 1:
        raise Refused(f"which source? The journal has {', '.join(sources) or 'none yet'}; --source names one")
    return given or sources[0]


def _overlaps(wait: Wait) -> Any:
    return and_(_gap.kind == LOST, _gap.from_ms <= wait.end // 1000, _gap.to_ms >= wait.begin // 1000)


def pauses_of(told: Iterable[Sequence[int]]) -> list[Pause]:
    """The pauses of a topic, from its events. `told`: the time (us) of each event, its verb, and when the pause ends
    (ms; 0 if it lasts until it is resumed)."""
    pauses: list[Pause] = []
    for at, verb, until in told:
        if pauses and (pauses[-1].end is None or pauses[-1].end > at):
            pauses[-1] = pauses[-1]._replace(end=at)
        if verb == Verb.PAUSE:
            pauses.append(Pause(at, until * 1000 or None))
    return pauses


def _is_in(pause: Pause, wait: Wait) -> bool:
    return pause.begin < wait.end and (pause.end is None or pause.end > wait.begin)


def joined(history: History, tail: Tail) -> None:
    """Add to the history from SQL what only the stream has so far. An event that reached SQL meanwhile is not added
    again."""
    known = {(event.ms, event.seq, event.n) for event in history.events if event.branch >= 0}
    new = [_told(each) for each in tail.events if each[:3] not in known]
    made = (each for each in tail.events if each.entry.verb is Verb.OCCUR)
    history.occurred.update({(each.ms, each.seq): each.event.id.partition("@")[0] for each in made})
    history.take(sorted([*history.events, *new], key=lambda told: told.order))


def _told(found: TailEvent) -> Told:
    event = found.event
    worker, reason = words_of(event.options, event.lease_ended)
    return Told(
        *(found.ms, found.seq, found.n, 0, event.created, event.topic, event.verb, event.before, event.after),
        *(event.at, event.was, event.due, event.next, event.priority, event.cause, event.attempts),
        *(event.deliveries, event.lease, found.entry.instance, found.entry.actor, worker, reason),
    )
