"""The partitions of `jq_event` by day (UTC), in PostgreSQL and MariaDB: a whole day is dropped at once.

An event of a day for which there is none goes to the default partition. SQLite has no partitions.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta

from sqlalchemy import Connection, text

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
