"""A transactional outbox: rows that the caller's own transaction writes, and that the relay, `jobqueue outbox`, hands
to the service. Rolled back: no job; committed: one.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypedDict, Unpack

from jobqueue_client import commands
from jobqueue_client.calls import encode
from jobqueue_client.fields import AddFields, Seconds, seconds
from jobqueue_client.tracing import traces

_TABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?")
_COLUMNS = ("id", "action", "topic", "body", "due", "options")
_OWN = ("command", "id", "topic", "body", "delay", "at")  # the fields of a command that have columns, or stand for them


class UpdateFields(TypedDict, total=False):
    delay: Seconds | None
    at: datetime | float | str | None
    body: Any
    """The new body; None sets it to JSON's null."""
    priority: int | None
    ttl: Seconds | None


class Outbox:
    """Writes rows with a connection of SQLAlchemy (a Connection or a Session) or of Django (`django.db.connection`).

    Nothing is committed here, and no connection is opened. The methods raise TypeError for any other connection, and
    ValueError or TypeError, before anything is written, for what the client's own methods refuse. docs/outbox.md.
    """

    def __init__(self, table: str = "jobqueue_outbox") -> None:
        """`table`: its name, which may begin with that of its schema. Raises ValueError."""
        if not isinstance(table, str) or not _TABLE.fullmatch(table):
            raise ValueError(
                f"table must be the name of a table, such as jobqueue_outbox or shop.outbox, not {table!r}"
            )
        self._table = table

    def add(
        self,
        connection: Any,
        topic: str,
        body: Any = ...,
        delay: Seconds | None = None,
        **fields: Unpack[AddFields],
    ) -> str:
        """Write an add, and return the id of its job: a random one unless `id` is given, after `<key>@` if there is a
        `key`. `delay` counts from now, by this machine's clock."""
        if fields.get("id") is None:
            made, key = uuid.uuid4().hex, fields.get("key")
            fields["id"] = made if key is None else f"{key}@{made}"
        command = commands.add(topic, body, delay, **fields).fields
        if traces is not None:
            command = traces.with_current_context(command)
        self._write(connection, command, fields.get("at"))
        job_id: str = command["id"]
        return job_id

    def update(self, connection: Any, id: str, **fields: Unpack[UpdateFields]) -> None:
        """Write an update of a delayed or ready job; fields not given stay as they are."""
        self._write(connection, commands.update(id, **fields).fields, fields.get("at"))

    def delete(self, connection: Any, id: str) -> None:
        """Write the deletion of a job."""
        self._write(connection, commands.delete(id).fields)

    def _write(self, connection: Any, command: Mapping[str, Any], at: datetime | float | str | None = None) -> None:
        for name in ("id", "topic")[: 2 if command["command"] == "add" else 1]:
            if not isinstance(command.get(name), str) or not command[name]:
                raise TypeError(f"{name} must be a string that is not empty, not {command.get(name)!r}")
        options = {name: value for name, value in command.items() if name not in _OWN}
        due = _due(command.get("delay"), at)
        encode([command["id"], command.get("topic"), due])  # NaN, which SQLite would store as no time at all
        row = {
            "id": command["id"],
            "action": command["command"],
            "topic": command.get("topic"),
            "body": encode(command["body"]).decode() if "body" in command else None,
            "due": due,
            "options": encode(options).decode() if options else None,
        }
        _insert(connection, self._table, row)


def _due(delay: Seconds | None, at: datetime | float | str | None) -> float | None:
    """Unix seconds. Raises ValueError."""
    if delay is not None and at is not None:
        raise ValueError("delay and at exclude each other")
    if delay is not None:
        return time.time() + seconds(delay)
    if isinstance(at, str):
        try:
            at = datetime.fromisoformat(at)
        except ValueError:
            raise ValueError(f"at must be RFC 3339 text, such as 2026-11-29T09:00:00Z, not {at!r}") from None
    if not isinstance(at, datetime):
        return at
    if at.utcoffset() is None:
        raise ValueError("a point in time needs a time zone; this one has none")
    return at.timestamp()


def _insert(connection: Any, table: str, row: dict[str, Any]) -> None:
    names = ", ".join(_COLUMNS)
    modules = [kind.__module__ for kind in type(connection).__mro__]  # a Session may be of a subclass, as SQLModel's
    packages = {module.partition(".")[0] for module in modules}
    if "sqlalchemy" in packages and not any(".asyncio" in module for module in modules):
        from sqlalchemy import text  # noqa: PLC0415 - the caller's

        values = ", ".join(f":{name}" for name in _COLUMNS)
        connection.execute(text(f"INSERT INTO {table} ({names}) VALUES ({values})"), row)  # noqa: S608 - checked
    elif "django" in packages:
        values = ", ".join(["%s"] * len(_COLUMNS))
        with connection.cursor() as cursor:
            cursor.execute(f"INSERT INTO {table} ({names}) VALUES ({values})", list(row.values()))  # noqa: S608 - checked
    else:
        raise TypeError(
            "an outbox writes with a Connection or a Session of SQLAlchemy, within run_sync if it is an asynchronous "
            f"one, or with django.db.connection, not with {type(connection).__module__}.{type(connection).__qualname__}"
        )
