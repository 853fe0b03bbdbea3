"""The sink `sql`: a table in the receiver's database. A message is confirmed by the commit of its row, whose key is
unique.

Messages that are sent at the same time share a transaction.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from msgspec import Meta
from sqlalchemy import (
    Column,
    DateTime,
    Double,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    false,
    func,
    insert,
    inspect,
    select,
)
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.schema import CreateTable
from sqlalchemy.sql.dml import Insert

from jobqueue.journal import url as urls
from jobqueue.journal.database import engine_of
from jobqueue.journal.store import Away
from jobqueue.journal.url import Address
from jobqueue.schema.fields import LONGEST_NAME
from jobqueue.sinks import Common, Down, Events, Message, Poison, Refused

MOST = 500  # messages

Write = Callable[[list[Message]], Awaitable[list[Exception | None]]]
"""Writes messages. Returns for each an error, or None if it is confirmed."""


class Batches:
    """Writes one batch after the other: messages that are sent meanwhile form the next one."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._waiting: list[tuple[Message, asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None

    async def send(self, message: Message) -> None:
        """Wait until a message is confirmed. Raises its error if it is not."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((message, done))
        if self._writing is None:
            self._writing = asyncio.create_task(self._run())
        await done

    async def close(self) -> None:
        """Cancel the current batch, whose messages are then not confirmed."""
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)

    async def _run(self) -> None:
        try:
            while self._waiting:
                some, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
                await self._write_some([each for each in some if not each[1].done()])  # the others were given up
        finally:
            self._writing = None

    async def _write_some(self, some: list[tuple[Message, asyncio.Future[None]]]) -> None:
        try:
            errors = await self._write([message for message, _ in some])
        except Exception as error:
            errors = [error for _ in some]
        for (_, done), found in zip(some, errors, strict=True):
            _settle(done, found)


def _settle(done: asyncio.Future[None], error: Exception | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)


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
    """The table with this name."""
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
    """The statement that creates the table."""
    return str(CreateTable(table).compile(dialect=_DIALECTS[where.kind].dialect())).strip() + ";"


def insert_of_nothing(table: Table) -> Insert:
    """A statement that inserts no row, but fails if an insert would: if the table, its columns or rights are missing,
    or the database is read-only."""
    names = [column.name for column in table.columns if column.server_default is None]
    return insert(table).from_select(names, select(*(table.c[name] for name in names)).where(false()))


def insert_of(where: Address, table: Table) -> Insert:
    """A statement that inserts the rows whose keys do not exist yet."""
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
    """What an error of the database means. Its text is left out if it may contain values."""
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
    """Whether an error is about the server, the connection or the login. With SQLite, all other errors are about its
    file."""
    if isinstance(code, int):
        return code in _AWAY_CODES or 2000 <= code < 3000
    return len(code) != _STATE or code.startswith(_AWAY_CLASSES)


def _is_content(code: str | int) -> bool:
    return code in _CONTENT_CODES or (
        isinstance(code, str) and len(code) == _STATE and code.startswith(_CONTENT_CLASSES)
    )


def _is_among(code: str | int, known: tuple[str | int, ...]) -> bool:
    return code in known or (isinstance(code, str) and any(isinstance(each, str) and each in code for each in known))


class Settings(Common, frozen=True, kw_only=True):
    url: Annotated[str, Meta(min_length=1)]
    """Like a journal's: sqlite, postgresql, mariadb, mysql; the URL also configures TLS."""
    table: Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,62}\Z")] = "jobqueue_inbox"
    schemes = urls.SCHEMES

    def __post_init__(self) -> None:
        if self.tls_ca or self.tls_cert or self.tls_key:
            raise ValueError("TLS of a database is set in its url, as options")


class Sink:
    """A sink with an engine of its own, on which one transaction runs at a time."""

    def __init__(self, settings: Settings, events: Events) -> None:
        self._settings = settings
        self._table = inbox(settings.table)
        self._engine: AsyncEngine | None = None
        self._batches = Batches(self._write)

    async def connect(self) -> None:
        try:
            self._where = urls.address(self._settings.url)
            self._engine = engine = await engine_of(self._where)
            self._insert = insert_of(self._where, self._table)
            async with engine.begin() as connection:
                await connection.execute(insert_of_nothing(self._table))
        except (urls.Refused, Away) as error:
            raise Down(str(error)) from None
        except Exception as error:
            fault = judged(error)
            cure = ddl(self._where, self._table) if isinstance(fault, NoTable) else ""
            raise Down(str(fault), cure=cure) from None

    async def send(self, message: Message) -> None:
        if self._engine is None:
            raise Down("no connection")
        await self._batches.send(message)

    async def check(self) -> list[str]:
        assert self._engine
        async with self._engine.connect() as connection:
            columns = await connection.run_sync(lambda sync: inspect(sync).get_columns(self._table.name))
        there = ", ".join(column["name"] for column in columns)
        return [f"table {self._table.name} has {there}"]

    async def close(self) -> None:
        await self._batches.close()
        engine, self._engine = self._engine, None
        if engine is not None:
            with contextlib.suppress(Exception):  # whatever its state, it is no longer needed
                await engine.dispose()

    async def _write(self, messages: list[Message]) -> list[Exception | None]:
        """Write all messages in one transaction; if one of them makes it fail, write each in its own."""
        error = await self._written(messages)
        if error is None:
            return [None for _ in messages]
        if isinstance(error, Down) or len(messages) == 1:
            return [error for _ in messages]
        return [await self._written([message]) for message in messages]

    async def _written(self, messages: list[Message]) -> Exception | None:
        if self._engine is None:
            return Down("no connection")
        try:
            async with self._engine.begin() as connection:
                await connection.execute(self._insert, [row_of(message) for message in messages])
        except Exception as error:
            return judged(error)
        return None
