"""The columns of a read: their names, and their types as Spark's `simpleString` spells them."""

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
"""The columns of jobs and dead letters."""

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
"""The columns of what=stats, one row per topic."""

HISTORY: Mapping[str, str] = {
    "time": "timestamp",
    "id": "string",
    "life": "timestamp",
    "topic": "string",
    "what": "string",
    "state_before": "string",
    "state_after": "string",
    "due": "timestamp",
    "next": "timestamp",
    "was": "timestamp",
    "priority": "int",
    "cause": "string",
    "attempts": "int",
    "deliveries": "int",
    "lease": "bigint",
    "worker": "string",
    "reason": "string",
    "instance": "string",
    "actor": "string",
    "source": "string",
    "shard": "int",
    "ms": "bigint",
    "seq": "bigint",
    "n": "int",
    "branch": "int",
    "forgotten": "boolean",
}
"""The columns of what=history, one row per event: those of the files that `jobqueue journal export` writes."""

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
"""Columns that only the service sets. A writer accepts them when they are null."""


class Column(NamedTuple):
    """A column of a query."""

    name: str
    """The name in the query."""
    field: str
    """The name in JOBS, STATS or HISTORY."""
    kind: str
    """The type, as there."""
    nullable: bool = True


def ddl(columns: Iterable[Column]) -> str:
    """The schema as DDL for Spark. Its timestamps are instants, whatever `TIMESTAMP` means in the session."""
    names = [(each.name.replace("`", "``"), each.kind.replace("timestamp", "timestamp_ltz")) for each in columns]
    return ", ".join(f"`{name}` {kind}" for name, kind in names)
