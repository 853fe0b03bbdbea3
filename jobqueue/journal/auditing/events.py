"""What the events answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, case, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from buckets.job import Cause, State, Verb
from jobqueue.journal import tables
from jobqueue.journal.auditing.asked import Asked, Found
from jobqueue.journal.auditing.ranges import key_of_events, of_events, shown

_event = tables.event.c
_delivery = tables.event.alias("delivery")
_DELIVERED = (Verb.POP, Verb.TAKE)
_PERCENT = (50, 95, 99)


def _counted(connection: AsyncConnection, source: str, asked: Asked, keys: Sequence[Any], *which: Any) -> Select[Any]:
    """How many events there are of each key; those of workers are joined with their deliveries."""
    query = select(*keys, func.count()).select_from(_with_worker() if _needs_join(asked) else tables.event)
    return query.where(*of_events(connection, source, asked), *which).group_by(*keys)


def _needs_join(asked: Asked) -> bool:
    """A move names its worker only where it wrote that: a delivery."""
    return asked.by == "worker"


def _with_worker() -> Any:
    same = (_delivery.c.id == _event.id) & (_delivery.c.source == _event.source) & (_delivery.c.life == _event.life)
    delivered = (_delivery.c.lease == _event.lease) & _delivery.c.verb.in_(_DELIVERED) & (_delivery.c.ms <= _event.ms)
    return tables.event.outerjoin(_delivery, same & delivered)


def _key(asked: Asked) -> Any:
    return _delivery.c.worker if _needs_join(asked) else key_of_events(asked.by)


async def _rows(connection: AsyncConnection, asked: Asked, query: Select[Any]) -> list[list[Any]]:
    return [[shown(asked.by, key), *rest] for key, *rest in await connection.execute(query)]


def _most_first(rows: list[list[Any]]) -> list[list[Any]]:
    """By their last column, which is a count."""
    return sorted(rows, key=lambda row: (-row[-1], [str(each) for each in row[:-1]]))


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
    return Found(columns, sorted(rows, key=lambda row: (-row[2], row[0])))


async def dead(connection: AsyncConnection, source: str, asked: Asked) -> Found:
    """Deaths by cause and reason."""
    keys = [_key(asked), _event.cause, _event.reason]
    died = _event.verb.in_((Verb.DUE, Verb.RELEASE, Verb.BURY))
    query = _counted(connection, source, asked, keys, _event.state_after == State.DEAD, died)
    rows = [
        [key, Cause(cause).name.lower(), reason or "", count]
        for key, cause, reason, count in await _rows(connection, asked, query)
    ]
    return Found([asked.by, "cause", "reason", "jobs"], _most_first(rows))


async def deleted(connection: AsyncConnection, source: str, asked: Asked) -> Found:
    """Jobs that were deleted, and by what."""
    return await _by_verb(connection, source, asked, (Verb.DELETE, Verb.PURGE, Verb.TRIM))


async def kicked(connection: AsyncConnection, source: str, asked: Asked) -> Found:
    """Dead letters that were kicked."""
    return await _by_verb(connection, source, asked, (Verb.KICK,))


async def _by_verb(connection: AsyncConnection, source: str, asked: Asked, verbs: Sequence[Verb]) -> Found:
    query = _counted(connection, source, asked, [_key(asked), _event.verb], _event.verb.in_(verbs))
    rows = [[key, Verb(verb).word, count] for key, verb, count in await _rows(connection, asked, query)]
    found = Found([asked.by, "by", "jobs"], _most_first(rows))
    if asked.by == "actor" and any(not row[0] for row in rows):
        found.notes.append("without an actor: no token and no person was named, or the service did it by itself")
    return found


async def expired_leases(connection: AsyncConnection, source: str, asked: Asked) -> Found:
    """Leases that ended without a finish."""
    which = _event.verb == Verb.DUE, _event.state_before == State.RESERVED
    query = _counted(connection, source, asked, [_key(asked)], *which)
    return Found([asked.by, "leases"], _most_first(await _rows(connection, asked, query)))


async def slow(connection: AsyncConnection, source: str, asked: Asked) -> Found:
    """How long finished deliveries took: percentiles, exact (the nearest rank)."""
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
    return Found(columns, sorted(rows, key=lambda row: (-row[-2], row[0]) if asked.by != "hour" else row[0]))
