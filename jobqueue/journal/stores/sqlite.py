"""SQLite, with the standard library, in a thread of its own."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from jobqueue.journal import schedules, tables
from jobqueue.journal.statements import EVENT, JOB, Known, Statements, columns, of_job, span, split, without_known
from jobqueue.journal.store import Away, Batch, ContentRefused, Overtaken, Position, Row
from jobqueue.journal.url import Address, Refused

OLDEST = (3, 35)
LOCKED_S = 30.0  # how long a transaction waits for another one to end
_CONTENT = (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.InterfaceError, OverflowError, UnicodeError)
_Result = TypeVar("_Result")


class RolledBack(sqlite3.Connection):
    """A connection that rolls back before it closes.

    A cancelled task leaves its cursor behind, and SQLite keeps a closed connection, its transaction and its lock as
    long as a cursor exists (https://www.sqlite.org/c3ref/close.html).
    """

    def close(self) -> None:
        try:
            if self.in_transaction:
                self.rollback()
        finally:
            super().close()


def check_version(version: tuple[int, ...] = sqlite3.sqlite_version_info) -> None:
    """Raises Refused if the version is too old."""
    if version < OLDEST:
        raise Refused(f"SQLite {'.'.join(map(str, version))} is older than {'.'.join(map(str, OLDEST))}")


_WRITE = Statements("?", "max")
_EVENTS = _WRITE.insert("jq_event", EVENT)
_KEPT = f"?{JOB.index('body_kept') + 1}"
_IS_KNOWN = f"CASE WHEN ?{JOB.index('body') + 1} IS NULL AND {_KEPT} = 1 THEN 2 ELSE {_KEPT} END"
_JOBS = f"{_WRITE.insert('jq_job', JOB, {'body_kept': _IS_KNOWN})} {_WRITE.changed_jobs}"


class SQLiteStore:
    """A store in a file. Its connection is opened when it is first needed, and again after an error."""

    def __init__(self, address: Address) -> None:
        self._path = address.path
        self._thread = ThreadPoolExecutor(1, "journal")
        self._held: sqlite3.Connection | None = None

    async def position(self, source: str, shard: int) -> Position | None:
        return await self._run(lambda: self._position(source, shard))

    async def write(self, batch: Batch) -> None:
        await self._run(lambda: self._write(batch))

    async def close(self) -> None:
        await self._run(self._close)
        self._thread.shutdown()

    async def _run(self, work: Callable[[], _Result]) -> _Result:
        """Run `work` in the thread. It is never interrupted: a transaction that has begun runs to its end."""
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._thread, work))

    def _connection(self) -> sqlite3.Connection:
        if self._held is None:
            self._held = sqlite3.connect(self._path, LOCKED_S, isolation_level=None)
            self._held.execute("PRAGMA synchronous = FULL")
        return self._held

    def _close(self) -> None:
        if self._held is not None:
            self._held.close()
            self._held = None

    def _position(self, source: str, shard: int) -> Position | None:
        with self._errors_told():
            found = self._connection().execute(_WRITE.position, (source, shard)).fetchone()
            return Position(*found) if found else None

    def _write(self, batch: Batch) -> None:
        with self._errors_told(), _transaction(self._connection()) as connection:
            self._move_position(connection, batch)
            events, minutes = batch.events, batch.minutes
            if batch.may_repeat and events:
                found = connection.execute(_WRITE.known, (*span(batch), batch.source, batch.shard))
                events, minutes = without_known(batch, map(Known._make, found))
            connection.executemany(_EVENTS, events)
            self._write_jobs(connection, batch.jobs)
            if batch.schedules:
                self._write_schedules(connection, batch.schedules)
            connection.executemany(_WRITE.minutes, minutes)
            for table, rows in ((tables.gap, batch.gaps), (tables.refused, batch.refused)):
                connection.executemany(_WRITE.insert(table.name, columns(table)), rows)

    @staticmethod
    def _move_position(connection: sqlite3.Connection, batch: Batch) -> None:
        key, before = (batch.source, batch.shard), batch.before
        if before is None:
            moved = connection.execute(_WRITE.found, (*key, *batch.after))
        else:
            moved = connection.execute(_WRITE.moved, (*key, *batch.after, *before[:5]))
        if not moved.rowcount:
            raise Overtaken

    @staticmethod
    def _write_jobs(connection: sqlite3.Connection, rows: Sequence[Row]) -> None:
        jobs = split(rows)
        bodiless = (of_job(row, "source", "id", "life", "ms", "seq", "n") for row in jobs.bodiless)
        connection.executemany(_WRITE.bodiless, bodiless)
        connection.executemany(_JOBS, jobs.told)
        aside = (of_job(row, "source", "id", "ms", "seq", "n", "at") for row in jobs.aside)
        connection.executemany(_WRITE.aside, aside)

    @staticmethod
    def _write_schedules(connection: sqlite3.Connection, rows: Sequence[Row]) -> None:
        told, moved, gone = schedules.split(rows)
        connection.executemany(_WRITE.schedules, told)
        for change, changed in ((schedules.MOVED, moved), (schedules.GONE, gone)):
            connection.executemany(change.sql(lambda number: f"?{number}"), change.values(changed))

    @contextmanager
    def _errors_told(self) -> Iterator[None]:
        """Raise SQLite's errors as those of the contract (store.py)."""
        try:
            yield
        except _CONTENT as error:
            raise ContentRefused(str(error)) from error
        except sqlite3.Error as error:
            self._close()
            raise Away(str(error)) from error


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
