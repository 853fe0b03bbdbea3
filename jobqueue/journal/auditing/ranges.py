"""Conditions in SQL, the same in each database."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, text
from sqlalchemy.ext.asyncio import AsyncConnection

from buckets.topics.within import is_pattern
from jobqueue.journal import tables
from jobqueue.journal.auditing.asked import Asked, By
from jobqueue.journal.taken_back import is_taken_back

_event, _minute = tables.event.c, tables.minute.c
MINUTE_US = 60_000_000
_LENGTHS_MS = {"hour": 3_600_000, "day": 86_400_000}


def is_topic(connection: AsyncConnection, column: ColumnElement[str], pattern: str | None) -> list[Any]:
    """Conditions on a topic, by its bytes."""
    if pattern is None:
        return []
    if not is_pattern(pattern):
        return [column == pattern]
    if connection.dialect.name == "sqlite":  # whose LIKE takes `A` and `a` for the same
        return [column.op("GLOB")(pattern)]
    for special in ("!", "%", "_"):
        pattern = pattern.replace(special, f"!{special}")
    return [column.like(pattern.replace("*", "%").replace("?", "_"), escape="!")]


def of_events(connection: AsyncConnection, source: str, asked: Asked) -> list[Any]:
    """Conditions on events, by their places: of those in a time and of some topics, which Redis has not taken back."""
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
    """What events are grouped by; an hour and a day as their number since the epoch."""
    return (
        {"topic": _event.topic, "actor": _event.actor}.get(by)
        if by not in _LENGTHS_MS
        else _event.ms // _LENGTHS_MS[by]
    )


def key_of_minutes(by: By) -> Any:
    """What minutes are grouped by."""
    return _minute.topic if by == "topic" else _minute.minute // (_LENGTHS_MS[by] // 60_000)


def ordered(by: By, rows: list[list[Any]], column: int) -> list[list[Any]]:
    """Rows with times in their order, others by a column, the largest first."""
    if by in _LENGTHS_MS:
        return sorted(rows, key=lambda row: row[0])
    return sorted(rows, key=lambda row: (-row[column], [str(each) for each in row]))


def shown(by: By, key: Any) -> str:
    """A key as it is shown; times are UTC."""
    if by in _LENGTHS_MS:
        begin = datetime.fromtimestamp(int(key) * _LENGTHS_MS[by] / 1000, UTC)
        return begin.strftime("%Y-%m-%d" if by == "day" else "%Y-%m-%d %H:%M")
    return key or ""
