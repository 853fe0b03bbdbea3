"""Keeps a journal from growing for ever: deletes old rows, and creates and drops the partitions of days.

Events are deleted by the time of their entry; ended jobs and tokens, and removed schedules, by their end; sums by their
minute. Live jobs, tokens and schedules stay. Rows are deleted in steps, so that no transaction is long. In PostgreSQL
and MariaDB, `jq_event` has a partition for each day (UTC), which is dropped as a whole. An event of a day without a
partition goes to the default one. SQLite has no partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import structlog
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

DAY_MS = 86_400_000
_BEHIND, _AHEAD = 1, 2  # days; events of yesterday may still be in the stream when a journal is created
_DEFAULT = {"postgresql": "jq_event_default", "mysql": "p_default"}
_FIRST = date(1970, 1, 1)
Change = list[str]
"""The statements of a transaction."""


def day_of(ms: int) -> date:
    return _FIRST + timedelta(days=ms // DAY_MS)


def days_to_have(now_ms: int) -> list[date]:
    """The days that need a partition."""
    return [day_of(now_ms) + timedelta(days=days) for days in range(-_BEHIND, _AHEAD + 1)]


def first(kind: str, now_ms: int) -> list[str]:
    """The statements that give the new, empty table its partitions."""
    days = days_to_have(now_ms)
    if kind == "postgresql":
        return [*map(_create, days), f"CREATE TABLE {_DEFAULT[kind]} PARTITION OF jq_event DEFAULT"]
    if kind == "mysql":
        return [f"ALTER TABLE jq_event PARTITION BY RANGE (ms) ({_listed(days)})"]
    return []


def there(connection: Connection) -> list[date]:
    """The days that have a partition, in order."""
    kind = connection.dialect.name
    if kind == "postgresql":
        query = "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'jq_event'::regclass"
    elif kind == "mysql":
        query = (
            "SELECT partition_name FROM information_schema.partitions WHERE table_schema = DATABASE() "
            "AND table_name = 'jq_event' AND partition_name IS NOT NULL"
        )
    else:
        return []
    names = (str(name) for (name,) in connection.execute(text(query)))
    return sorted(_day(name) for name in names if name[-8:].isdigit())


def missing(connection: Connection, now_ms: int) -> list[Change]:
    """The changes that create the missing partitions, except for days before the first existing one. Events of these
    days that are in the default partition move to the new ones."""
    kind, days = connection.dialect.name, there(connection)
    wanted = [day for day in days_to_have(now_ms) if day not in days and (not days or day > days[0])]
    if kind == "postgresql":
        return [_make(day) for day in wanted]
    if kind == "mysql" and (late := [day for day in wanted if not days or day > days[-1]]):
        return [[f"ALTER TABLE jq_event REORGANIZE PARTITION {_DEFAULT[kind]} INTO ({_listed(late)})"]]
    return []


def beyond(connection: Connection, before_ms: int) -> list[Change]:
    """The changes that drop the days whose events are all older than a time."""
    kind, days = connection.dialect.name, [day for day in there(connection) if _end(day) <= before_ms]
    if kind == "postgresql":
        return [[f"DROP TABLE {_name(day)}"] for day in days]
    if kind == "mysql":
        return [[f"ALTER TABLE jq_event DROP PARTITION p{day:%Y%m%d}"] for day in days]
    return []


def default_of(kind: str) -> str | None:
    """The default partition, as the source of a query; None if there are no partitions."""
    return {"postgresql": "jq_event_default", "mysql": "jq_event PARTITION (p_default)"}.get(kind)


def _name(day: date) -> str:
    return f"jq_event_{day:%Y%m%d}"


def _day(name: str) -> date:
    return datetime.strptime(name[-8:], "%Y%m%d").replace(tzinfo=UTC).date()


def _end(day: date) -> int:
    return ((day - _FIRST).days + 1) * DAY_MS


def _create(day: date) -> str:
    return f"CREATE TABLE {_name(day)} PARTITION OF jq_event {_values(day)}"


def _values(day: date) -> str:
    return f"FOR VALUES FROM ({_end(day) - DAY_MS}) TO ({_end(day)})"


def _make(day: date) -> Change:
    """The change that creates a partition in PostgreSQL. Events of its day must leave the default partition first."""
    name, default = _name(day), _DEFAULT["postgresql"]
    events = f"ms >= {_end(day) - DAY_MS} AND ms < {_end(day)}"
    return [
        f"LOCK TABLE {default} IN ACCESS EXCLUSIVE MODE",  # so that no event of that day is added meanwhile
        f"CREATE TABLE {name} (LIKE jq_event INCLUDING ALL)",
        f"WITH moved AS (DELETE FROM {default} WHERE {events} RETURNING *) INSERT INTO {name} SELECT * FROM moved",
        f"ALTER TABLE jq_event ATTACH PARTITION {name} {_values(day)}",
    ]


def _listed(days: Iterable[date]) -> str:
    parts = [f"PARTITION p{day:%Y%m%d} VALUES LESS THAN ({_end(day)})" for day in days]
    return ", ".join([*parts, f"PARTITION {_DEFAULT['mysql']} VALUES LESS THAN MAXVALUE"])


log = structlog.get_logger()

STEP = 10_000  # rows
_VACUUM = 2_000  # SQLite pages that are freed in a step
_LOCK = "jobqueue journal keeping"
_LOCK_NUMBER = 0x6A716B70
_PATIENCE_S = 2  # how long to wait for a table that is being read: waiting to drop it blocks everyone else
_LOCKED_POSTGRESQL, _LOCKED = "55P03", 1205
_MINUTE_MS = 60_000
_PAUSE_MS = 60_000


@dataclass(frozen=True, slots=True)
class Periods:
    """How long each kind of row is kept, in ms; None for ever."""

    events: int | None = None
    jobs: int | None = None
    """Counted from the end of the job; also for schedules and tokens."""
    minutes: int | None = None


class Keeper:
    """Keeps one journal within its periods, a step at a time."""

    def __init__(self, engine: AsyncEngine, periods: Periods) -> None:
        self._engine, self._periods = engine, periods
        self._next_ms = self._next_days_ms = 0
        self._outside: tuple[int, int] | None = None

    async def step(self, now_ms: int) -> bool:
        """Create the partitions of the coming days, and delete what is too old, at most `STEP` rows of a table. Must be
        called between batches. Returns True if there is more to delete: then the next step is due at once. Does nothing
        while nothing is left to delete and less than a minute has passed.

        `now_ms`: the time of Redis. If another process is doing the same, this step leaves it to that process. A day
        that cannot be created or dropped is logged, and tried again. Raises DBAPIError if the database is away.
        """
        if self._next_ms - _PAUSE_MS <= now_ms < self._next_ms:
            return False
        async with self._engine.connect() as connection:
            has_more = await connection.run_sync(self._keep, now_ms)
            if connection.dialect.name == "sqlite":
                raw: Any = (await connection.get_raw_connection()).driver_connection
                await raw.execute_fetchall(f"PRAGMA incremental_vacuum({_VACUUM})")
        self._next_ms = now_ms if has_more else now_ms + _PAUSE_MS
        return has_more

    def _keep(self, connection: Connection, now_ms: int) -> bool:
        """Returns True if there is more to delete."""
        kind = connection.dialect.name
        if not _is_alone(connection):
            return False
        try:
            if kind != "sqlite" and not self._next_days_ms - _PAUSE_MS <= now_ms < self._next_days_ms:
                self._next_days_ms = now_ms + _PAUSE_MS
                _change_days(connection, self._periods, now_ms)
                self._look_outside(connection, kind)
            # A list: every table gets its step.
            deleted = [_delete(connection, kind, *each) for each in _too_old(kind, self._periods, now_ms)]
            return any(number >= STEP for number in deleted)
        finally:
            _let_others(connection)

    def _look_outside(self, connection: Connection, kind: str) -> None:
        """Log events that belong to no day's partition: they are deleted row by row, which costs more."""
        first, last = connection.exec_driver_sql(f"SELECT MIN(ms), MAX(ms) FROM {default_of(kind)}").one()
        found = None if first is None else (first, last)
        if found and found != self._outside:
            days = {"first": str(day_of(first)), "last": str(day_of(last))}
            log.warning("journal.outside_days", **days)
        self._outside = found


def _is_alone(connection: Connection) -> bool:
    """Acquire the lock of this journal. Returns False if another process has it."""
    kind = connection.dialect.name
    if kind == "sqlite":
        return True
    if kind == "postgresql":
        return bool(connection.exec_driver_sql(f"SELECT pg_try_advisory_lock({_LOCK_NUMBER})").scalar())
    return bool(connection.exec_driver_sql(f"SELECT GET_LOCK({_lock_name()}, 0)").scalar())


def _let_others(connection: Connection) -> None:
    kind = connection.dialect.name
    connection.rollback()
    if kind == "postgresql":
        connection.exec_driver_sql(f"SELECT pg_advisory_unlock({_LOCK_NUMBER})")
    elif kind == "mysql":
        connection.exec_driver_sql(f"SELECT RELEASE_LOCK({_lock_name()})")
    connection.commit()


def _lock_name() -> str:
    return f"CONCAT('{_LOCK} ', MD5(DATABASE()))"


def _change_days(connection: Connection, periods: Periods, now_ms: int) -> None:
    """Drop and create partitions, each in a transaction of its own. A failure does not stop the others, unless the
    table is locked."""
    old = [] if periods.events is None else beyond(connection, now_ms - periods.events)
    new = missing(connection, now_ms)
    connection.commit()
    for changes in (old, new):
        for change in changes:
            if not _is_changed(connection, change):
                break  # the table is being read: batches have to wait only once


def _is_changed(connection: Connection, change: Change) -> bool:
    """Change a partition, in a transaction. Returns False if the table is locked. Raises DBAPIError if the database is
    away."""
    limit = {
        "postgresql": f"SET LOCAL lock_timeout = '{_PATIENCE_S}s'",
        "mysql": f"SET SESSION lock_wait_timeout = {_PATIENCE_S}",
    }[connection.dialect.name]
    try:
        for statement in (limit, *change):
            connection.exec_driver_sql(statement)
        connection.commit()
    except DBAPIError as error:
        connection.rollback()
        if error.connection_invalidated:
            raise
        log.warning("journal.days_not_changed", statement=change[-1], error=str(error.orig))
        return not _is_locked(error)
    return True


def _is_locked(error: DBAPIError) -> bool:
    """Returns True if a lock could not be acquired in time."""
    said = error.orig
    return (
        getattr(said, "sqlstate", None) == _LOCKED_POSTGRESQL or (getattr(said, "args", None) or (None,))[0] == _LOCKED
    )


def _too_old(kind: str, periods: Periods, now_ms: int) -> Iterable[tuple[str, Sequence[str], str]]:
    """What is deleted row by row: for each table, its key and a condition."""
    if periods.events is not None:
        before = now_ms - periods.events
        events = default_of(kind) or "jq_event"
        yield events, ("ms", "source", "shard", "seq", "n", "branch"), f"ms < {before}"
        yield "jq_refused", ("number",), f"time < {before * 1000}"
    if periods.jobs is not None:
        yield "jq_job", ("source", "id"), f"ended < {(now_ms - periods.jobs) * 1000}"
        yield "jq_schedule", ("source", "name"), f"gone < {(now_ms - periods.jobs) * 1000}"
        yield "jq_token", ("source", "id"), f"ended < {(now_ms - periods.jobs) * 1000}"
    if periods.minutes is not None:
        key = ("minute", "source", "topic", "verb", "state")
        yield "jq_minute", key, f"minute < {(now_ms - periods.minutes) // _MINUTE_MS}"


def _delete(connection: Connection, kind: str, table: str, key: Sequence[str], where: str) -> int:
    """Delete at most `STEP` rows; returns how many were deleted."""
    names = ", ".join(key)
    some = f"FROM {table} WHERE {where} LIMIT {STEP}"
    statement = {
        "sqlite": f"DELETE FROM {table} WHERE ({names}) IN (SELECT {names} {some})",
        "postgresql": f"DELETE FROM {table} WHERE ctid = ANY (ARRAY(SELECT ctid {some}))",
        "mysql": f"DELETE {some}",
    }[kind]
    number = connection.exec_driver_sql(statement).rowcount
    connection.commit()
    return number
