"""The rows of an outbox: which of them a relay may take, and how they are settled. One connection; SQL for each kind of
database.

A relay takes the oldest row of an id, and no other one of it. So a row that is refused, and stays with its `error`,
holds up the later rows of its id, until somebody deletes it or sets `error` to null.
"""

# ruff: noqa: S608 - the name of the table has been checked

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import TextClause, bindparam, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from jobqueue.journal.database import engine_of
from jobqueue.journal.store import Away
from jobqueue.journal.url import Address, Refused
from jobqueue.outbox.table import CHANNEL

MOST = 1000
"""Rows that are taken together."""
_MOST_SLOTS = 16  # that one relay holds, so that others find some to work on
_LOOKED_AT = 2000  # of the oldest rows, for their slots
_CLOSE_S = 5.0
_NO_TABLE = ("42P01", 1146)  # SQLSTATE, and the error of MariaDB

_MAY_GO = (
    "error IS NULL AND number <= (SELECT min(number) FROM {table} AS of_id WHERE of_id.id = waiting.id)"
    " AND coalesce(topic, '') NOT IN :closed"
)
_AGE_S = {
    "postgresql": "extract(epoch FROM now() - written)",
    "mysql": "timestampdiff(MICROSECOND, written, current_timestamp(6)) / 1000000.0",
    "sqlite": "(julianday('now') - julianday(written)) * 86400.0",
}
_PREPARED = {
    # The statistics of a table that fills and empties are of another moment: the order of the numbers is always right.
    "postgresql": (
        *("SET statement_timeout = '30s'", "SET lock_timeout = '10s'"),
        *("SET enable_seqscan = off", "SET enable_bitmapscan = off", "SET enable_sort = off"),
    ),
    "mysql": ("SET SESSION innodb_lock_wait_timeout = 10", "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"),
    "sqlite": (),
}


class Found(NamedTuple):
    """A row that may be taken, without its body."""

    number: int
    id: str
    action: str
    size: int
    """Characters of its body and options."""


class Row(NamedTuple):
    """A row that a relay has taken."""

    number: int
    id: str
    action: str
    topic: str | None
    body: str | None
    due: float | None
    options: str | None


class Standing(NamedTuple):
    """How far an outbox is behind."""

    behind_s: float
    """The age of the oldest row that may go; 0 if there is none."""
    refused: int
    """Rows that the service has refused."""


class Source:
    """The outbox in one database."""

    def __init__(self, address: Address, table: str) -> None:
        """`table`: its checked name."""
        self._address, self._table = address, table
        self._engine: AsyncEngine | None = None
        self._connection: AsyncConnection | None = None
        self._file: int | None = None
        self.written = asyncio.Event()
        """Set when the database reports new rows."""
        may_go = _MAY_GO.format(table=table)
        within = "" if self._is_alone else "slot IN :slots AND "
        size = "length(coalesce(body, '')) + length(coalesce(options, ''))"
        oldest = f"SELECT {_AGE_S[address.kind]} FROM {table} AS waiting WHERE {may_go} ORDER BY number LIMIT 1"
        refused = f"SELECT count(*) FROM {table} WHERE error IS NOT NULL"
        self._look = _lists(
            f"SELECT DISTINCT slot FROM (SELECT slot FROM {table} AS waiting WHERE {may_go} ORDER BY number"
            f" LIMIT {_LOOKED_AT}) AS oldest"
        )
        self._find = _lists(
            f"SELECT number, id, action, {size} FROM {table} AS waiting WHERE {within}{may_go} AND number > :after"
            f" ORDER BY number LIMIT {MOST}"
        )
        names = ", ".join(Row._fields)
        self._read = _lists(f"SELECT {names} FROM {table} WHERE number IN :numbers AND error IS NULL ORDER BY number")
        self._delete = _lists(f"DELETE FROM {table} WHERE number IN :numbers")
        self._refuse = text(f"UPDATE {table} SET error = :error WHERE number = :number")
        self._standing = _lists(f"SELECT ({oldest}), ({refused})")

    @property
    def _is_alone(self) -> bool:
        """SQLite has one relay, which holds a lock of a file beside the database."""
        return self._address.kind == "sqlite"

    @property
    def is_open(self) -> bool:
        """Whether it has a connection, which may have broken unnoticed."""
        return self._connection is not None

    async def open(self, *, works: bool = True) -> None:
        """Connect. `works`: whether rows will be taken. Raises Refused if the outbox cannot be used, Away if it cannot
        be reached."""
        if self._is_alone:
            self._check_file()
            if works:
                self._lock_file()
        with self._reported():
            self._engine = await engine_of(self._address)
            connection = await self._engine.connect()
            self._connection = await connection.execution_options(isolation_level="AUTOCOMMIT")
            for statement in _PREPARED[self._address.kind]:
                await connection.execute(text(statement))
            await self.standing()
            if self._address.kind == "postgresql" and works:
                await self._listen(connection)

    async def _listen(self, connection: AsyncConnection) -> None:
        plain = self._table.rpartition(".")[2]

        def hear(*told: Any) -> None:
            if str(told[-1]).rpartition(".")[2] == plain:
                self.written.set()

        driver: Any = (await connection.get_raw_connection()).driver_connection
        try:
            await driver.add_listener(CHANNEL, hear)
        except Exception as error:  # the driver's own, such as that of a standby
            raise Away(str(error)) from error

    def _check_file(self) -> None:
        if not Path(self._address.path).exists():  # SQLite would make it
            raise Refused(f"there is no file {self._address.path}")

    def _lock_file(self) -> None:
        if self._file is not None:
            return
        path = f"{os.path.realpath(self._address.path)}-relay"
        try:
            file = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
        except OSError as error:
            raise Refused(f"{path}, the lock of the relay, cannot be opened: {error.strerror}") from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(file)
            raise Refused(f"another relay reads {self._address.path}: an outbox in SQLite has only one") from None
        self._file = file

    async def close(self) -> None:
        """Disconnect, which gives back all locks."""
        connection, self._connection = self._connection, None
        engine, self._engine = self._engine, None
        with contextlib.suppress(SQLAlchemyError, OSError, TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                if connection is not None:
                    await connection.invalidate()
                    await connection.close()
                if engine is not None:
                    await engine.dispose()

    def release(self) -> None:
        """Let another relay work on the file, after `close`."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    async def standing(self) -> Standing:
        """How far the outbox is behind. Raises Refused, Away."""
        behind_s, refused = (await self._ask(self._standing, closed=[*_NO_TOPIC]))[0]
        return Standing(max(0.0, float(behind_s or 0)), int(refused))

    @contextlib.asynccontextmanager
    async def held(self, closed: Sequence[str]) -> AsyncIterator[Sequence[int]]:
        """Hold the locks of some slots that have rows to take, apart from those of `closed` topics; yields the slots,
        none if there is nothing to do. Raises Refused, Away."""
        found = [0] if self._is_alone else await self._locked(closed)
        try:
            yield found
        except Exception:
            await self._unlock(found)
            raise
        await self._unlock(found)  # not if cancelled: the connection may hang, and is closed, which ends its locks

    async def find(self, slots: Sequence[int], closed: Sequence[str], after: int) -> list[Found]:
        """The oldest rows of these slots that may be taken, up to MOST, with numbers above `after`. Raises Refused,
        Away."""
        slotted = {} if self._is_alone else {"slots": list(slots)}
        return [
            Found(*row) for row in await self._ask(self._find, after=after, closed=[*_NO_TOPIC, *closed], **slotted)
        ]

    async def read(self, numbers: Sequence[int]) -> list[Row]:
        """Rows by their numbers. Raises Refused, Away."""
        return [Row(*row) for row in await self._ask(self._read, numbers=list(numbers))]

    async def settle(self, done: Sequence[int], refused: Sequence[tuple[int, str]]) -> None:
        """Delete the rows that were handed on, and note the errors of others. Raises Refused, Away."""
        with self._reported():
            if done:
                await self._connected.execute(self._delete, {"numbers": list(done)})
            if refused:
                errors = [{"number": number, "error": error} for number, error in refused]
                await self._connected.execute(self._refuse, errors)

    async def _locked(self, closed: Sequence[str]) -> list[int]:
        slots = [int(row[0]) for row in await self._ask(self._look, closed=[*_NO_TOPIC, *closed])]
        some = random.sample(slots, min(_MOST_SLOTS, len(slots)))
        if not some:
            return []
        if self._address.kind == "postgresql":
            lock = text(f"{_GIVEN} WHERE pg_try_advisory_lock({_LOCK_OF_TABLE}, slot)")
            return [row[0] for row in await self._ask(lock, slots=some, table=self._table)]
        locks = ", ".join(f"GET_LOCK(concat(left(md5(:name), 24), '/{slot}'), 0)" for slot in some)
        (row,) = await self._ask(text(f"SELECT {locks}"), name=self._lock_name)
        return [slot for slot, got in zip(some, row, strict=True) if got == 1]

    async def _unlock(self, slots: Sequence[int]) -> None:
        if not slots or self._is_alone:
            return
        with contextlib.suppress(Away):  # a lost connection has no locks, and is noticed by the next statement
            if self._address.kind == "postgresql":
                unlock = text(f"SELECT pg_advisory_unlock({_LOCK_OF_TABLE}, slot) FROM ({_GIVEN}) AS held")
                await self._ask(unlock, slots=list(slots), table=self._table)
            else:
                locks = ", ".join(f"RELEASE_LOCK(concat(left(md5(:name), 24), '/{slot}'))" for slot in slots)
                await self._ask(text(f"SELECT {locks}"), name=self._lock_name)

    @property
    def _lock_name(self) -> str:
        """MariaDB's locks are of the whole server."""
        return self._table if "." in self._table else f"{self._address.database}.{self._table}"

    async def _ask(self, statement: TextClause, **values: Any) -> Sequence[Any]:
        with self._reported():
            return (await self._connected.execute(statement, values)).all()

    @property
    def _connected(self) -> AsyncConnection:
        if self._connection is None:
            raise Away("no connection")
        return self._connection

    @contextlib.contextmanager
    def _reported(self) -> Iterator[None]:
        """Turns errors of the database into Refused and Away."""
        try:
            yield
        except (SQLAlchemyError, OSError) as error:
            cause: Any = getattr(error, "orig", None) or error
            codes = (getattr(cause, "sqlstate", None), cause.args[0] if cause.args else None)
            if not {*codes}.isdisjoint(_NO_TABLE) or f"no such table: {self._table}" in str(cause):
                raise Refused(f"there is no table {self._table}: `jobqueue outbox --schema` prints its DDL") from None
            raise Away(str(cause).partition("\n")[0]) from error


_NO_TOPIC = ("\n",)  # what no topic is called: SQL has no empty list
_GIVEN = "SELECT slot FROM unnest(CAST(:slots AS int[])) AS slot"
# By the table itself, whatever name it was given.
_LOCK_OF_TABLE = "hashtext('jobqueue_outbox ' || CAST(CAST(CAST(:table AS regclass) AS oid) AS text))"


def _lists(statement: str) -> TextClause:
    """A statement with those of its parameters that are lists."""
    names = [name for name in ("slots", "numbers", "closed") if f":{name}" in statement]
    return text(statement).bindparams(*(bindparam(name, expanding=True) for name in names))
