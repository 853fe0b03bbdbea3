"""The table of messages, its statements, and what the errors of a database mean."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Column, DateTime, Double, Integer, MetaData, String, Table, Text, false, func, insert, select
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, SQLAlchemyError
from sqlalchemy.schema import CreateTable
from sqlalchemy.sql.dml import Insert

from jobqueue.journal.url import Address
from jobqueue.schema.fields import LONGEST_NAME
from jobqueue.sinks import Down, Message, Poison, Refused

_DIALECTS: dict[str, Any] = {"sqlite": sqlite, "postgresql": postgresql, "mysql": mysql}
_LONGEST_MS = 20  # digits of a time, and a colon

# By the codes of PostgreSQL (SQLSTATE) and MariaDB, and the words of SQLite, whose errors have no code here.
_AGAIN = ("40001", "40P01", "55P03", "57014", 1205, 1213, "database is locked", "database table is locked")
_NO_TABLE = ("42P01", 1146, "no such table")
_UNUSABLE: dict[str, tuple[str | int, ...]] = {
    "the table has other columns": ("42703", 1054, "no column named", "no such column"),
    "the table may not be written to": ("42501", 1044, 1142),
    "the database is full": ("53100", 1021, 1114, "database or disk is full"),
    "the database is read-only": ("25006", 1290, 1792, 1836, "readonly database"),
}
_CONTENT_CODES = (1264, 1366, 1406, 3819, 4025)
_CONTENT_CLASSES = ("22", "23")
_AWAY_CODES = (1040, 1045, 1049, 1053)
_AWAY_CLASSES = ("08", "25", "28", "3D", "53", "57", "58", "XX")
_STATE = 5  # characters of SQLSTATE


class NoTable(Down):
    """The table is missing."""


def inbox(name: str) -> Table:
    """The table by that name."""
    name_type = String(LONGEST_NAME).with_variant(mysql.VARCHAR(LONGEST_NAME, collation="utf8mb4_bin"), "mysql")
    key = LONGEST_NAME + _LONGEST_MS
    key_type = String(key).with_variant(mysql.VARCHAR(key, collation="utf8mb4_bin"), "mysql")
    text = Text().with_variant(mysql.LONGTEXT(collation="utf8mb4_bin"), "mysql")
    return Table(
        name,
        MetaData(),
        Column("message_key", key_type, primary_key=True),
        Column("id", name_type, nullable=False),
        Column("topic", name_type, nullable=False),
        Column("due", Double, nullable=False),  # unix seconds
        Column("attempt", Integer, nullable=False),
        Column("headers", text, nullable=False),  # JSON
        Column("body", text, nullable=False),
        Column("received_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    )


def ddl(where: Address, table: Table) -> str:
    """The statement that makes it."""
    return str(CreateTable(table).compile(dialect=_DIALECTS[where.kind].dialect())).strip() + ";"


def insert_of_nothing(table: Table) -> Insert:
    """Inserts no row, but fails where an insert would: without the table, its columns or rights, or if it is
    read-only."""
    names = [column.name for column in table.columns if column.server_default is None]
    return insert(table).from_select(names, select(*(table.c[name] for name in names)).where(false()))


def insert_of(where: Address, table: Table) -> Insert:
    """Inserts rows whose key is not there yet."""
    if where.kind == "mysql":  # not IGNORE, which would also cut values to fit
        row = mysql.insert(table)
        return row.on_duplicate_key_update(message_key=row.inserted.message_key)
    result: Insert = _DIALECTS[where.kind].insert(table).on_conflict_do_nothing(index_elements=["message_key"])
    return result


def row_of(message: Message) -> dict[str, Any]:
    """The row of a message. Raises Poison."""
    return {
        "message_key": message.key,
        "id": message.id,
        "topic": message.topic,
        "due": message.due,
        "attempt": message.attempt,
        "headers": json.dumps(message.headers, ensure_ascii=False),
        "body": message.body.decode(),
    }


def judged(error: Exception) -> Poison | Refused | Down:
    """What an error of the database means. Its words are not told where they may hold values."""
    if isinstance(error, OSError | TimeoutError):
        return Down(f"no connection: {type(error).__name__}")
    if not isinstance(error, SQLAlchemyError):
        raise error
    if not isinstance(error, DBAPIError) or error.orig is None:
        return Down(type(error).__name__)
    return _judged(error, _code(error.orig))


def _judged(error: DBAPIError, code: str | int) -> Poison | Refused | Down:
    if isinstance(error, DataError | IntegrityError) or _is_content(code):
        return Poison(f"the database refused it by its content ({code})")
    if _is_among(code, _AGAIN):
        return Refused(f"the database had another transaction in its way ({code})")
    if _is_among(code, _NO_TABLE):
        return NoTable(f"the table is missing ({code})")
    if known := next((words for words, codes in _UNUSABLE.items() if _is_among(code, codes)), None):
        return Down(f"{known} ({code})")
    if error.connection_invalidated or _is_away(code):
        return Down(f"the database cannot be used: {code}")
    return Refused(f"the database refused it ({code})")


def _code(error: BaseException) -> str | int:
    """The number of an error of MariaDB, SQLSTATE, or the words of SQLite."""
    if error.args and isinstance(error.args[0], int):
        return error.args[0]
    return str(getattr(error, "sqlstate", None) or error)


def _is_away(code: str | int) -> bool:
    """Whether it is about the server, the connection or the login: of SQLite, everything else is about its file."""
    if isinstance(code, int):
        return code in _AWAY_CODES or 2000 <= code < 3000
    return len(code) != _STATE or code.startswith(_AWAY_CLASSES)


def _is_content(code: str | int) -> bool:
    return code in _CONTENT_CODES or (
        isinstance(code, str) and len(code) == _STATE and code.startswith(_CONTENT_CLASSES)
    )


def _is_among(code: str | int, known: tuple[str | int, ...]) -> bool:
    return code in known or (isinstance(code, str) and any(isinstance(each, str) and each in code for each in known))
