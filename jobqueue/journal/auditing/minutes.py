"""What the sums by minute answer."""

from __future__ import annotations

from typing import Any

from sqlalchemy import case, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from buckets.job import State, Verb
from jobqueue.journal import tables
from jobqueue.journal.auditing.asked import Asked, Found, place_of
from jobqueue.journal.auditing.ranges import key_of_minutes, of_minutes, shown
from jobqueue.metrics.process import LATENESS_S

_minute = tables.minute.c
_DELIVERED = (Verb.POP, Verb.TAKE)


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
    return Found(columns, sorted(rows, key=lambda row: (-row[2], row[0]) if asked.by == "topic" else row[0]))


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
    return Found(
        [asked.by, *_VOLUME], sorted(rows, key=lambda row: (-row[1], row[0]) if asked.by == "topic" else row[0])
    )
