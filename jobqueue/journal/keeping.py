"""What keeps a journal from growing for ever: old rows are deleted, days come and go.

Events go by the time of their entry; ended jobs and tokens, and removed schedules, by their end; sums by their minute;
what lives stays. All is deleted in steps, so that no transaction is long, except whole days of events in PostgreSQL and
MariaDB, where `jq_event` has a partition for each day (UTC): that is dropped at once. An event of a day without a
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
_BEHIND, _AHEAD = 1, 2  # days; events of yesterday may still be in the stream when a journal is founded
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
    """The days that have a partition, in their order."""
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
    """What makes the partitions that are not there, but for days before the first one. Events of these days that the
    default partition has move to them."""
    kind, days = connection.dialect.name, there(connection)
    wanted = [day for day in days_to_have(now_ms) if day not in days and (not days or day > days[0])]
    if kind == "postgresql":
        return [_make(day) for day in wanted]
    if kind == "mysql" and (late := [day for day in wanted if not days or day > days[-1]]):
        return [[f"ALTER TABLE jq_event REORGANIZE PARTITION {_DEFAULT[kind]} INTO ({_listed(late)})"]]
    return []


def beyond(connection: Connection, before_ms: int) -> list[Change]:
    """What drops the days whose events are all from before that time."""
    kind, days = connection.dialect.name, [day for day in there(connection) if _end(day) <= before_ms]
    if kind == "postgresql":
        return [[f"DROP TABLE {_name(day)}"] for day in days]
    if kind == "mysql":
        return [[f"ALTER TABLE jq_event DROP PARTITION p{day:%Y%m%d}"] for day in days]
    return []


def default_of(kind: str) -> str | None:
    """The default partition, as the source of a query; None where there are no partitions."""
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
    """What makes a partition of PostgreSQL, which cannot be made while the default one has events of its day."""
    name, default = _name(day), _DEFAULT["postgresql"]
    events = f"ms >= {_end(day) - DAY_MS} AND ms < {_end(day)}"
    return [
        f"LOCK TABLE {default} IN ACCESS EXCLUSIVE MODE",  # so that no event of that day comes meanwhile
        f"CREATE TABLE {name} (LIKE jq_event INCLUDING ALL)",
        f"WITH moved AS (DELETE FROM {default} WHERE {events} RETURNING *) INSERT INTO {name} SELECT * FROM moved",
        f"ALTER TABLE jq_event ATTACH PARTITION {name} {_values(day)}",
    ]


def _listed(days: Iterable[date]) -> str:
    parts = [f"PARTITION p{day:%Y%m%d} VALUES LESS THAN ({_end(day)})" for day in days]
    return ", ".join([*parts, f"PARTITION {_DEFAULT['mysql']} VALUES LESS THAN MAXVALUE"])


log = structlog.get_logger()

STEP = 10_000  # rows
_VACUUM = 2_000  # pages of SQLite that are given back in a step
_LOCK = "jobqueue journal keeping"
_LOCK_NUMBER = 0x6A716B70
_PATIENCE_S = 2  # for a table that someone reads: who waits to drop it holds up all others
_LOCKED_POSTGRESQL, _LOCKED = "55P03", 1205
_MINUTE_MS = 60_000
_PAUSE_MS = 60_000


@dataclass(frozen=True, slots=True)
class Periods:
    """How long what is kept, in ms. None: for ever."""

    events: int | None = None
    jobs: int | None = None
    """After their end; of schedules and tokens likewise."""
    minutes: int | None = None


class Keeper:
    """Keeps one journal within its periods, a step at a time."""

    def __init__(self, engine: AsyncEngine, periods: Periods) -> None:
        self._engine, self._periods = engine, periods
        self._next_ms = self._next_days_ms = 0
        self._outside: tuple[int, int] | None = None

    async def step(self, now_ms: int) -> bool:
        """Make the days that come, and delete what is too old, `STEP` rows of a table at most; to be called between
        batches. Returns whether more is to be deleted: then the next step is due at once. It does nothing while nothing
        is left to delete and less than a minute has passed.

        `now_ms`: the time of Redis. Another process that does the same meanwhile is left to it. A day that cannot be
        made or dropped is logged, and tried again. Raises DBAPIError where the database is away.
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
        """Returns whether there is more to delete."""
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
        """Tell of events that no day takes: they are deleted by rows, which costs more."""
        first, last = connection.exec_driver_sql(f"SELECT MIN(ms), MAX(ms) FROM {default_of(kind)}").one()
        found = None if first is None else (first, last)
        if found and found != self._outside:
            days = {"first": str(day_of(first)), "last": str(day_of(last))}
            log.warning("journal.outside_days", **days)
        self._outside = found


def _is_alone(connection: Connection) -> bool:
    """Whether no other process keeps this journal now."""
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
    """Drop and make partitions, each in a transaction of its own, whether or not the others can be."""
    old = [] if periods.events is None else beyond(connection, now_ms - periods.events)
    new = missing(connection, now_ms)
    connection.commit()
    for changes in (old, new):
        for change in changes:
            if not _is_changed(connection, change):
                break  # somebody reads the table: batches wait once


def _is_changed(connection: Connection, change: Change) -> bool:
    """Change a partition, in a transaction; False: somebody has the table. Raises DBAPIError where the database is
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
    """Whether a lock could not be had in time."""
    said = error.orig
    return (
        getattr(said, "sqlstate", None) == _LOCKED_POSTGRESQL or (getattr(said, "args", None) or (None,))[0] == _LOCKED
    )


def _too_old(kind: str, periods: Periods, now_ms: int) -> Iterable[tuple[str, Sequence[str], str]]:
    """What is deleted by rows: a table, its key, and a condition."""
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
    """Delete a step of rows; returns how many."""
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
