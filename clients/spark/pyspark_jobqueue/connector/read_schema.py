"""The columns of a read: names, and types as Spark's `simpleString` has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

JOBS: Mapping[str, str] = {
    "id": "string",
    "topic": "string",
    "state": "string",
    "due_at": "timestamp",
    "body": "string",
    "priority": "int",
    "ttr": "double",
    "ttl": "double",
    "retention": "double",
    "tries": "int",
    "backoff": "array<double>",
    "headers": "map<string,string>",
    "tags": "array<string>",
    "attempt": "int",
    "deliveries": "int",
    "created_at": "timestamp",
    "delayed_until": "timestamp",
    "ready_since": "timestamp",
    "reserved_until": "timestamp",
    "dead_since": "timestamp",
    "lease": "bigint",
    "worker": "string",
    "reason": "string",
    "cause": "string",
}
"""Of jobs, and of dead letters."""

STATS: Mapping[str, str] = {
    "topic": "string",
    "delayed": "bigint",
    "ready": "bigint",
    "reserved": "bigint",
    "dead": "bigint",
    "totals": "map<string,bigint>",
    "oldest_ready": "double",
    "paused": "boolean",
    "paused_until": "timestamp",
}
"""Of topics."""

READ_ONLY: tuple[str, ...] = (
    "state",
    "attempt",
    "deliveries",
    "created_at",
    "delayed_until",
    "ready_since",
    "reserved_until",
    "dead_since",
    "lease",
    "worker",
    "reason",
    "cause",
)
"""What the service tells of a job and nobody writes: a writer takes these columns when they are null."""


class Column(NamedTuple):
    """A column of a query."""

    name: str
    """As the query has it."""
    told: str
    """Its name above."""
    kind: str
    """Its type, as above."""
    nullable: bool = True


def ddl(columns: Iterable[Column]) -> str:
    """The schema as Spark reads it; its timestamps are instants, whatever a session means by `TIMESTAMP`."""
    names = [(each.name.replace("`", "``"), each.kind.replace("timestamp", "timestamp_ltz")) for each in columns]
    return ", ".join(f"`{name}` {kind}" for name, kind in names)
