"""PostgreSQL, with asyncpg: rows are sent as binary COPY."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import asyncpg
from sqlalchemy import Table

from jobqueue.journal import schedules
from jobqueue.journal.statements import JOB, Jobs, Statements, columns, of_job
from jobqueue.journal.store import Away, Batch, ContentRefused, Overtaken, Row
from jobqueue.journal.stores import Patience, ServerStore
from jobqueue.journal.url import Address, Refused

DRIVER = "asyncpg"
OLDEST = 14
_CONNECT_S = 10.0
_UNUSABLE = (
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.ClientConfigurationError,
    asyncpg.UnsupportedClientFeatureError,
)
# The driver reports a connection that ends in the middle of a COPY as an internal error.
_AWAY = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
# Encoding errors come from the driver itself: it has found a value that its column cannot hold.
_CONTENT = (
    asyncpg.DataError,
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.ProgramLimitExceededError,
    OverflowError,
    UnicodeError,
    TypeError,
)


_WRITE = Statements("$", "greatest")
_NEW_JOBS = "CREATE TEMPORARY TABLE jq_new_job (LIKE jq_job) ON COMMIT DELETE ROWS"
_TOLD = {name: name for name in JOB} | {
    "body_kept": "CASE WHEN body IS NULL AND body_kept = 1 THEN 2 ELSE body_kept END"
}
_JOBS = (
    f"INSERT INTO jq_job ({', '.join(_TOLD)}) SELECT {', '.join(_TOLD.values())} FROM jq_new_job {_WRITE.changed_jobs}"
)


async def connect(address: Address) -> Any:
    """An asyncpg connection. Raises Refused, Away."""
    try:
        return await asyncpg.connect(address.url, timeout=_CONNECT_S)
    except _UNUSABLE as error:
        raise Refused(f"{address.shown} cannot be used: {error}") from None
    except ValueError as error:  # about the URL, which the error may quote
        raise Refused(f"{address.shown} is not a URL of PostgreSQL: {type(error).__name__}") from None
    except _AWAY as error:
        raise Away(f"{type(error).__name__}: {error}") from error


async def check_server(address: Address) -> None:
    """Raises Refused if the server is too old or has another encoding, Away if it cannot be reached."""
    connection = await connect(address)
    try:
        version = connection.get_server_version()
        encoding = await connection.fetchval("SHOW server_encoding")
    except _AWAY as error:
        raise Away(str(error)) from error
    finally:
        await _close(connection)
    check_version(version.major, version.minor)
    if encoding != "UTF8":
        raise Refused(f"the database has the encoding {encoding}; a journal needs one of UTF8, as bodies have any text")


def check_version(major: int, minor: int) -> None:
    """Raises Refused if the version is too old."""
    if major < OLDEST:
        raise Refused(f"PostgreSQL {major}.{minor} is older than {OLDEST}")


def make(address: Address) -> PostgreSQLStore:
    return PostgreSQLStore(address)


class PostgreSQLStore(ServerStore):
    select_position, select_known = _WRITE.position, _WRITE.known

    async def close(self) -> None:
        if self._held is not None:
            held, self._held = self._held, None
            await _close(held)

    async def select(self, connection: Any, statement: str, values: Row) -> Sequence[Row]:
        found: Sequence[Row] = await connection.fetch(statement, *values)
        return found

    async def insert(self, connection: Any, table: Table, rows: Sequence[Row]) -> None:
        await _copy(connection, table.name, columns(table), rows)

    async def move_position(self, connection: Any, batch: Batch) -> None:
        key, before = (batch.source, batch.shard), batch.before
        if before is None:
            moved = await connection.fetchval(f"{_WRITE.found} RETURNING 1", *key, *batch.after)
        else:
            moved = await connection.fetchval(f"{_WRITE.moved} RETURNING 1", *key, *batch.after, *before[:5])
        if not moved:
            raise Overtaken

    async def write_jobs(self, connection: Any, jobs: Jobs) -> None:
        bodiless = [of_job(row, "source", "id", "life", "ms", "seq", "n") for row in jobs.bodiless]
        await _each(connection, _WRITE.bodiless, bodiless)
        if jobs.told:
            await _copy(connection, "jq_new_job", JOB, jobs.told)
            await connection.execute(_JOBS)
        aside = [of_job(row, "source", "id", "ms", "seq", "n", "at") for row in jobs.aside]
        await _each(connection, _WRITE.aside, aside)

    async def write_schedules(self, connection: Any, rows: Sequence[Row]) -> None:
        told, moved, gone = schedules.split(rows)
        await _each(connection, _WRITE.schedules, told)
        for change, changed in ((schedules.MOVED, moved), (schedules.GONE, gone)):
            await _each(connection, change.sql(lambda number: f"${number}"), change.values(changed))

    async def add_minutes(self, connection: Any, rows: Sequence[Row]) -> None:
        await _each(connection, _WRITE.minutes, rows)

    def _give_up(self, patience: Patience) -> None:
        patience.lost()
        self._held.terminate()

    def _drop(self) -> None:
        """Close the connection without waiting for the server."""
        if self._held is not None:
            self._held.terminate()
            self._held = None

    @asynccontextmanager
    async def transaction(self, shard: int) -> AsyncIterator[Any]:
        patience = self._patience[shard]
        try:
            if self._held is None or self._held.is_closed():
                self._held = await connect(self._address)
                await self._held.execute(_NEW_JOBS)
            # Not an asyncio timeout: when that expires, it would wait for the server's answer to the cancellation.
            watch = asyncio.get_running_loop().call_later(patience.seconds, self._give_up, patience)
            try:
                async with self._held.transaction():
                    yield self._held
            finally:
                watch.cancel()
            patience.regained()
        except BaseException as error:
            self._drop()
            if isinstance(error, _CONTENT):
                raise ContentRefused(f"{type(error).__name__}: {error}") from error
            if isinstance(error, (*_AWAY, Refused)):
                raise Away(f"{type(error).__name__}: {error}") from error
            raise


async def _close(connection: Any) -> None:
    with suppress(*_AWAY):
        await connection.close(timeout=_CONNECT_S)


async def _copy(connection: Any, table: str, names: Sequence[str], rows: Sequence[Row]) -> None:
    if rows:
        await connection.copy_records_to_table(table, records=rows, columns=names)


async def _each(connection: Any, statement: str, rows: Iterable[Row]) -> None:
    if held := list(rows):
        await connection.executemany(statement, held)
