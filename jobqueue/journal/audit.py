"""The questions of `jobqueue audit`: the SQL that each one runs on a journal, the same for every database, and its
answer.

Questions about volume and lateness are answered from the sums by minute, all others from the events. The question
`gaps` lists what a journal is missing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from sqlalchemy import ColumnElement, Select, case, func, select, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from buckets.job import Cause, State, Verb
from buckets.topics.within import is_pattern
from jobqueue.journal import choices, tables
from jobqueue.journal.choices import is_taken_back
from jobqueue.journal.database import open_engine
from jobqueue.journal.explaining.told import FORGOTTEN, LOST
from jobqueue.journal.explaining.words import moment
from jobqueue.journal.history import source_of
from jobqueue.journal.store import Away
from jobqueue.journal.url import Refused
from jobqueue.metrics.process import LATENESS_S

By = Literal["topic", "hour", "day", "worker", "actor"]


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked."""

    since: int
    """us; for the sums by minute, the whole minute that contains this time counts."""
    until: int
    """us: events recorded from then on are left out."""
    topic: str | None = None
    """A pattern in which `*` matches any characters and `?` matches one; None for any topic."""
    by: By = "topic"
    over_s: float = 0.0
    """s: only lateness or waiting above this counts."""


@dataclass(slots=True)
class Found:
    """The answer: a table."""

    columns: list[str]
    rows: list[list[Any]]
    notes: list[str] = field(default_factory=list)
    """What is missing from the table, in words."""


class Inexact(ValueError):
    """A lateness for which the sums by minute have no range; the message lists those that they have."""

    def __init__(self) -> None:
        bounds = ", ".join(f"{bound:g}" for bound in LATENESS_S)
        super().__init__(f"lateness is kept by ranges, so --over is one of {bounds} s")


def place_of(over_s: float) -> int:
    """The first range of lateness above a bound. Raises Inexact."""
    if over_s not in LATENESS_S:
        raise Inexact
    return LATENESS_S.index(over_s) + 1


_event = tables.event.c
_minute = tables.minute.c
MINUTE_US = 60_000_000
_LENGTHS_MS = {"hour": 3_600_000, "day": 86_400_000}


def is_topic(connection: AsyncConnection, column: ColumnElement[str], pattern: str | None) -> list[Any]:
    """Conditions on a topic, by its bytes."""
    if pattern is None:
        return []
    if not is_pattern(pattern):
        return [column == pattern]
    if connection.dialect.name == "sqlite":  # whose LIKE ignores case
        return [column.op("GLOB")(pattern)]
    for special in ("!", "%", "_"):
        pattern = pattern.replace(special, f"!{special}")
    return [column.like(pattern.replace("*", "%").replace("?", "_"), escape="!")]


def of_events(connection: AsyncConnection, source: str, asked: Asked) -> list[Any]:
    """Conditions that select the events within the time and the topics of `asked`, by the time of their entries. Walked
    records, and events that Redis has taken back, are left out."""
    return [
        *(_event.ms >= asked.since // 1000, _event.ms < -(-asked.until // 1000), _event.source == source),
        *(_event.branch >= 0, text(f"NOT {is_taken_back(tables.event.name)}")),
        *is_topic(connection, _event.topic, asked.topic),
    ]


def of_minutes(connection: AsyncConnection, source: str, asked: Asked) -> list[Any]:
    """Conditions on the sums by minute."""
    first, last = asked.since // MINUTE_US, -(-asked.until // MINUTE_US)
    return [
        *(_minute.minute >= first, _minute.minute < last, _minute.source == source),
        *is_topic(connection, _minute.topic, asked.topic),
    ]


def key_of_events(by: By) -> Any:
    """The column that events are grouped by; an hour or a day is its number since the epoch."""
    return (
        {"topic": _event.topic, "actor": _event.actor}.get(by)
        if by not in _LENGTHS_MS
        else _event.ms // _LENGTHS_MS[by]
    )


def key_of_minutes(by: By) -> Any:
    """The column that minutes are grouped by."""
    return _minute.topic if by == "topic" else _minute.minute // (_LENGTHS_MS[by] // 60_000)


def ordered(by: By, rows: list[list[Any]], column: int) -> list[list[Any]]:
    """Rows in order of time if they are grouped by time, otherwise by a column, the largest first."""
    if by in _LENGTHS_MS:
        return sorted(rows, key=lambda row: row[0])
    return sorted(rows, key=lambda row: (-row[column], [str(each) for each in row]))


def shown(by: By, key: Any) -> str:
    """A key as it is shown; times are UTC."""
    if by in _LENGTHS_MS:
        begin = datetime.fromtimestamp(int(key) * _LENGTHS_MS[by] / 1000, UTC)
        return begin.strftime("%Y-%m-%d" if by == "day" else "%Y-%m-%d %H:%M")
    return key or ""


_delivery = tables.event.alias("delivery")
_DELIVERED = (Verb.POP, Verb.TAKE)
_PERCENT = (50, 95, 99)


def _counted(connection: AsyncConnection, source: str, asked: Asked, keys: Sequence[Any], *which: Any) -> Select[Any]:
    """A query that counts events by key. To group by worker, events are joined with their deliveries."""
    query = select(*keys, func.count()).select_from(_with_worker() if _needs_join(asked) else tables.event)
    return query.where(*of_events(connection, source, asked), *which).group_by(*keys)


def _needs_join(asked: Asked) -> bool:
    """Returns True if events must be joined with their deliveries: only the event of a delivery names its worker."""
    return asked.by == "worker"


def _with_worker() -> Any:
    same = (_delivery.c.id == _event.id) & (_delivery.c.source == _event.source) & (_delivery.c.life == _event.life)
    delivered = (_delivery.c.lease == _event.lease) & _delivery.c.verb.in_(_DELIVERED) & (_delivery.c.ms <= _event.ms)
    return tables.event.outerjoin(_delivery, same & delivered)


def _key(asked: Asked) -> Any:
    return _delivery.c.worker if _needs_join(asked) else key_of_events(asked.by)


async def _rows(connection: AsyncConnection, asked: Asked, query: Select[Any]) -> list[list[Any]]:
    return [[shown(asked.by, key), *rest] for key, *rest in await connection.execute(query)]


async def waited(connection: AsyncConnection, source: str, asked: Asked) -> Found:
    """Deliveries of jobs that had been ready for longer than `over_s`."""
    key = _event.worker if asked.by == "worker" else key_of_events(asked.by)
    span: ColumnElement[int] = _event.at - _event.was * 1000
    over = case((span > round(asked.over_s * 1e6), 1), else_=0)
    query = (
        select(key, func.count(), func.sum(over), func.max(span))
        .where(*of_events(connection, source, asked))
        .where(_event.verb.in_(_DELIVERED), _event.state_before == State.READY)
        .group_by(key)
    )
    rows = [
        [shown(asked.by, found), count, int(over), round(100 * int(over) / count, 3), max(most, 0) / 1e6]
        for found, count, over, most in await connection.execute(query)
    ]
    columns = [asked.by, "deliveries", "waited", "percent", "most_s"]
    return Found(columns, ordered(asked.by, rows, 2))


async def dead(connection: AsyncConnection, source: str, asked: Asked) -> Found:
    """Deaths by cause and reason."""
    keys = [_key(asked), _event.cause, _event.reason]
    died = _event.verb.in_((Verb.DUE, Verb.RELEASE, Verb.BURY))
    query = _counted(connection, source, asked, keys, _event.state_after == State.DEAD, died)
    rows = [
        [key, Cause(cause).name.lower(), reason or "", count]
        for key, cause, reason, count in await _rows(connection, asked, query)
    ]
    return Found([asked.by, "cause", "reason", "jobs"], ordered(asked.by, rows, -1))


async def deleted(connection: AsyncConnection, source: str, asked: Asked) -> Found:
    """Jobs that were deleted, and by what."""
    return await _by_verb(connection, source, asked, (Verb.DELETE, Verb.PURGE, Verb.TRIM))


async def kicked(connection: AsyncConnection, source: str, asked: Asked) -> Found:
    """Dead letters that were kicked."""
    return await _by_verb(connection, source, asked, (Verb.KICK,))


async def _by_verb(connection: AsyncConnection, source: str, asked: Asked, verbs: Sequence[Verb]) -> Found:
    query = _counted(connection, source, asked, [_key(asked), _event.verb], _event.verb.in_(verbs))
    rows = [[key, Verb(verb).word, count] for key, verb, count in await _rows(connection, asked, query)]
    found = Found([asked.by, "by", "jobs"], ordered(asked.by, rows, -1))
    if asked.by == "actor" and any(not row[0] for row in rows):
        found.notes.append("without an actor: no token and no person was named, or the service did it by itself")
    return found


async def expired_leases(connection: AsyncConnection, source: str, asked: Asked) -> Found:
    """Leases that ended without a finish."""
    which = _event.verb == Verb.DUE, _event.state_before == State.RESERVED
    query = _counted(connection, source, asked, [_key(asked)], *which)
    return Found([asked.by, "leases"], ordered(asked.by, await _rows(connection, asked, query), -1))


async def slow(connection: AsyncConnection, source: str, asked: Asked) -> Found:
    """How long finished deliveries took, as exact percentiles (nearest rank)."""
    # A lease is numbered by the time of its delivery.
    span = (_event.at - _event.lease).label("span")
    key = _key(asked).label("found")
    each = (
        select(
            key,
            span,
            func.row_number().over(partition_by=key, order_by=span).label("place"),
            func.count().over(partition_by=key).label("total"),
        )
        .select_from(_with_worker() if _needs_join(asked) else tables.event)
        .where(*of_events(connection, source, asked))
        .where(_event.verb == Verb.FINISH, _event.state_before == State.RESERVED)
        .subquery()
    )
    at = [func.min(case((each.c.place * 100 >= each.c.total * part, each.c.span))) for part in _PERCENT]
    query = select(each.c.found, func.count(), *at, func.max(each.c.span)).group_by(each.c.found)
    rows = [
        [shown(asked.by, found), count, *(max(int(us), 0) / 1e6 for us in spans)]
        for found, count, *spans in await connection.execute(query)
    ]
    columns = [asked.by, "finished", *(f"p{part}_s" for part in _PERCENT), "most_s"]
    return Found(columns, ordered(asked.by, rows, -2))


async def late(connection: AsyncConnection, source: str, asked: Asked) -> Found:
    """First deliveries later than `over_s` after their due time. Raises Inexact."""
    key = key_of_minutes(asked.by)
    over = sum(
        (_minute[f"late_{place}"] for place in range(place_of(asked.over_s) + 1, len(LATENESS_S) + 1)),
        start=_minute[f"late_{place_of(asked.over_s)}"],
    )
    sums = [func.sum(_minute.firsts), func.sum(over), func.sum(_minute.late_sum), func.max(_minute.late_most)]
    query = (
        select(key, *sums)
        .where(*of_minutes(connection, source, asked), _minute.verb.in_(_DELIVERED))
        .group_by(key)
        .having(func.sum(_minute.firsts) > 0)
    )
    rows = [
        [
            shown(asked.by, each[0]),
            int(each[1]),
            int(each[2]),
            _share(each[2], each[1]),
            _mean(each[3], each[1]),
            each[4],
        ]
        for each in await connection.execute(query)
    ]
    columns = [asked.by, "first_deliveries", "late", "percent", "average_s", "most_s"]
    return Found(columns, ordered(asked.by, rows, 2))


def _share(part: Any, whole: Any) -> float:
    return round(100 * int(part) / int(whole), 3)


def _mean(total: float, count: Any) -> float:
    return round(total / int(count), 6)


_VOLUME = {
    "added": case((_minute.verb.in_((Verb.ADD, Verb.REPLACE)), _minute.events), else_=0),
    "delivered": case(
        (_minute.verb.in_(_DELIVERED), _minute.events), (_minute.verb == Verb.UNPOP, -_minute.events), else_=0
    ),
    "finished": case((_minute.state == State.FINISHED, _minute.events), else_=0),
    "released": case((_minute.verb == Verb.RELEASE, _minute.events), else_=0),
    "died": case(
        (_minute.verb.in_((Verb.DUE, Verb.RELEASE, Verb.BURY)) & (_minute.state == State.DEAD), _minute.events), else_=0
    ),
    "kicked": case((_minute.verb == Verb.KICK, _minute.events), else_=0),
    "deleted": case((_minute.verb.in_((Verb.DELETE, Verb.PURGE, Verb.TRIM)), _minute.events), else_=0),
}


async def volume(connection: AsyncConnection, source: str, asked: Asked) -> Found:
    """How many jobs were added, delivered, finished, …"""
    key = key_of_minutes(asked.by)
    query = (
        select(key, *(func.sum(each) for each in _VOLUME.values()))
        .where(*of_minutes(connection, source, asked), _minute.topic != "")
        .group_by(key)
    )
    rows = [
        [shown(asked.by, found), *map(int, counts)] for found, *counts in await connection.execute(query) if any(counts)
    ]
    return Found([asked.by, *_VOLUME], ordered(asked.by, rows, 1))


_gap, _refused = tables.gap.c, tables.refused.c
_KINDS = {LOST: "lost", FORGOTTEN: "forgotten"}
_BEGINNING = "the beginning"
_MOST = 10_000


async def gaps(connection: AsyncConnection, source: str, asked: Asked) -> Found:
    """Events that never reached the journal (lost), and events that Redis has forgotten, as in a failover."""
    query = (
        select(tables.gap)
        .where(_gap.source == source, _gap.kind.in_(_KINDS))
        .where(_gap.to_ms >= asked.since // 1000, _gap.from_ms < asked.until // 1000)
        .order_by(_gap.number)
        .limit(_MOST)
    )
    rows = [
        [
            *(_KINDS[row.kind], row.shard, moment(row.from_ms * 1000) if row.from_ms else _BEGINNING),
            *(moment(row.to_ms * 1000), row.entries, moment(row.found), moment(row.walked) if row.walked else ""),
        ]
        for row in await connection.execute(query)
    ]
    found = Found(["kind", "shard", "from", "to", "entries", "found", "walked"], rows)
    which = _refused.source == source, _refused.time >= asked.since, _refused.time < asked.until
    refused = (await connection.execute(select(func.count()).select_from(tables.refused).where(*which))).scalar()
    if refused:
        found.notes.append(f"{refused:,} events could not be read; they are in jq_refused")
    return found


async def lost(connection: AsyncConnection, source: str, asked: Asked) -> list[str]:
    """What is missing from a period, in words: entries that were cut off, and everything that happened while events
    were off."""
    query = select(func.sum(_gap.entries), func.sum(case((_gap.entries == 0, 1), else_=0))).where(
        *(_gap.source == source, _gap.kind == LOST),
        *(_gap.to_ms >= asked.since // 1000, _gap.from_ms < asked.until // 1000),
    )
    entries, offs = (await connection.execute(query)).one()
    notes = [f"{int(entries):,} entries of that time are missing"] if entries else []
    notes += ["events were off for a part of that time"] if offs else []
    return [f"{note}; see jobqueue audit gaps" for note in notes]


_position = tables.position.c
_LAG_US = 60_000_000  # a lag up to this is not worth a note


class Question(NamedTuple):
    """A question, and whether the sums by minute answer it."""

    ask: Callable[[AsyncConnection, str, Asked], Awaitable[Found]]
    by_minute: bool = False
    by_ends: bool = False
    """True if the events that begin or end a life, and deaths, are enough to answer it. They never are by worker,
    because only deliveries name workers."""


QUESTIONS = {
    "late": Question(late, by_minute=True),
    "waited": Question(waited),
    "dead": Question(dead, by_ends=True),
    "deleted": Question(deleted, by_ends=True),
    "kicked": Question(kicked),
    "expired-leases": Question(expired_leases),
    "slow": Question(slow, by_ends=True),
    "volume": Question(volume, by_minute=True),
    "gaps": Question(gaps),
}


async def ask(url: str, source: str | None, name: str, asked: Asked) -> Found:
    """Ask a journal. `source`: None for the only source of the journal. Raises Refused, Away, Inexact."""
    question = QUESTIONS[name]
    engine = await open_engine(url)
    try:
        source = await source_of(engine, source)
        async with engine.connect() as connection:
            if not question.by_minute and name != "gaps":
                await _check_kept(connection, source, question, asked)
            found = await question.ask(connection, source, asked)
            found.notes += await _notes(connection, source, name, question, asked)
            return found
    except (SQLAlchemyError, OSError) as error:
        raise Away(str(getattr(error, "orig", None) or error)) from error
    finally:
        await engine.dispose()


async def _check_kept(connection: AsyncConnection, source: str, question: Question, asked: Asked) -> None:
    """Raises Refused if the journal does not keep the events of that time that the question needs."""
    known = choices.changes(await connection.execute(choices.query(source)))
    for each in choices.unkept(known, asked.since, asked.until):
        if each.events == "none" or not question.by_ends or asked.by == "worker":
            raise Refused(f"{each.words}; this question needs the others, too: ask about another time")


async def _notes(connection: AsyncConnection, source: str, name: str, question: Question, asked: Asked) -> list[str]:
    """Notes on what the answer cannot include."""
    if question.by_minute:
        oldest = (await connection.execute(select(func.min(_minute.minute)))).scalar()
        first = None if oldest is None else oldest * MINUTE_US
    else:
        oldest = (await connection.execute(select(func.min(_event.ms)))).scalar()
        first = None if oldest is None else oldest * 1000
    ends = select(func.min(_position.since), func.min(_position.time)).where(_position.source == source)
    begun, until = (await connection.execute(ends)).one()
    since = max(begun // MINUTE_US * MINUTE_US, first or begun) if question.by_minute else max(begun, first or begun)
    notes = []
    if asked.since < since:
        notes.append(f"the journal goes back to {moment(since)} UTC")
    if asked.until > until + _LAG_US:
        notes.append(f"the journal has what was recorded until {moment(until)} UTC")
    return notes if name == "gaps" else notes + await lost(connection, source, asked)
