"""PostgreSQL, by asyncpg: rows travel as binary COPY."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import asyncpg

from jobqueue.journal import schedules, tables
from jobqueue.journal.store import Away, Batch, ContentRefused, Overtaken, Position, Row
from jobqueue.journal.stores import Patience
from jobqueue.journal.url import Address, Refused
from jobqueue.journal.writing import (
    EVENT,
    JOB,
    MINUTE,
    MINUTE_KEY,
    SCHEDULE,
    Known,
    assignments,
    columns,
    job_changes,
    minute_changes,
    of_job,
    schedule_changes,
    span,
    split,
    without_known,
)

DRIVER = "asyncpg"
OLDEST = 14
_CONNECT_S = 10.0
_NEW = "EXCLUDED.{}"
_UNUSABLE = (
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.ClientConfigurationError,
    asyncpg.UnsupportedClientFeatureError,
)
# A connection that ends in the middle of a COPY is an internal error to the driver.
_AWAY = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
# Errors of encoding are the driver's: it has found a value that its column cannot hold.
_CONTENT = (
    asyncpg.DataError,
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.ProgramLimitExceededError,
    OverflowError,
    UnicodeError,
    TypeError,
)


def _insert(table: str, names: Sequence[str]) -> str:
    places = ", ".join(f"${number}" for number, _ in enumerate(names, 1))
    return f"INSERT INTO {table} ({', '.join(names)}) VALUES ({places})"


_NEW_JOBS = "CREATE TEMPORARY TABLE jq_new_job (LIKE jq_job) ON COMMIT DELETE ROWS"
_TOLD = {name: name for name in JOB} | {
    "body_kept": "CASE WHEN body IS NULL AND body_kept = 1 THEN 2 ELSE body_kept END"
}
_JOBS = (
    f"INSERT INTO jq_job ({', '.join(_TOLD)}) SELECT {', '.join(_TOLD.values())} FROM jq_new_job "
    f"ON CONFLICT (source, id) DO UPDATE SET {assignments(job_changes(_NEW))} "
    "WHERE (EXCLUDED.ms, EXCLUDED.seq, EXCLUDED.n) > (jq_job.ms, jq_job.seq, jq_job.n)"
)
_BODILESS = (
    "UPDATE jq_job SET body = NULL, body_kept = 2 "
    "WHERE source = $1 AND id = $2 AND life = $3 AND (ms, seq, n) < ($4, $5, $6)"
)
_ASIDE = (
    "UPDATE jq_job SET state = 0, ms = $3, seq = $4, n = $5, at = $6, ended = $6 "
    "WHERE source = $1 AND id = $2 AND (ms, seq, n) < ($3, $4, $5)"
)
_SCHEDULES = (
    f"{_insert('jq_schedule', SCHEDULE)} ON CONFLICT (source, name) "
    f"DO UPDATE SET {assignments(schedule_changes(_NEW))} "
    "WHERE (EXCLUDED.ms, EXCLUDED.seq, EXCLUDED.n) > (jq_schedule.ms, jq_schedule.seq, jq_schedule.n)"
)
_MINUTES = (
    f"{_insert('jq_minute', MINUTE)} ON CONFLICT ({', '.join(MINUTE_KEY)}) "
    f"DO UPDATE SET {assignments(minute_changes(_NEW, 'greatest'))}"
)
_POSITION = "SELECT epoch, ms, seq, entries, stream, since, time FROM jq_position WHERE source = $1 AND shard = $2"
_FOUND = f"{_insert('jq_position', columns(tables.position))} ON CONFLICT DO NOTHING RETURNING 1"
_MOVED = (
    "UPDATE jq_position SET epoch = $3, ms = $4, seq = $5, entries = $6, stream = $7, since = $8, time = $9 "
    "WHERE source = $1 AND shard = $2 AND epoch = $10 AND ms = $11 AND seq = $12 AND entries = $13 AND stream = $14 "
    "RETURNING 1"
)
_KNOWN = "SELECT ms, seq, n, branch, checksum FROM jq_event WHERE ms BETWEEN $1 AND $2 AND source = $3 AND shard = $4"


async def connect(address: Address) -> Any:
    """A connection of asyncpg. Raises Refused, Away."""
    try:
        return await asyncpg.connect(address.url, timeout=_CONNECT_S)
    except _UNUSABLE as error:
        raise Refused(f"{address.shown} cannot be used: {error}") from None
    except ValueError as error:  # of the URL, which it may quote
        raise Refused(f"{address.shown} is not a URL of PostgreSQL: {type(error).__name__}") from None
    except _AWAY as error:
        raise Away(f"{type(error).__name__}: {error}") from error


async def check_server(address: Address) -> None:
    """Raises Refused where the server is too old or has another encoding; Away."""
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
    """Raises Refused."""
    if major < OLDEST:
        raise Refused(f"PostgreSQL {major}.{minor} is older than {OLDEST}")


def make(address: Address) -> PostgreSQLStore:
    return PostgreSQLStore(address)


class PostgreSQLStore:
    """A store on one connection, which is opened when it is first needed, and again after an error."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._held: Any = None
        self._patience: defaultdict[int, Patience] = defaultdict(Patience)  # by shard: others go on meanwhile

    async def position(self, source: str, shard: int) -> Position | None:
        async with self._connection(shard) as connection:
            found = await connection.fetchrow(_POSITION, source, shard)
            return Position(*found) if found else None

    async def write(self, batch: Batch) -> None:
        async with self._connection(batch.shard) as connection, connection.transaction():
            await self._move_position(connection, batch)
            events, minutes = batch.events, batch.minutes
            if batch.may_repeat and events:
                found = await connection.fetch(_KNOWN, *span(batch), batch.source, batch.shard)
                events, minutes = without_known(batch, map(Known._make, found))
            await _copy(connection, "jq_event", EVENT, events)
            await self._write_jobs(connection, batch.jobs)
            if batch.schedules:
                await self._write_schedules(connection, batch.schedules)
            for table, rows in ((tables.gap, batch.gaps), (tables.refused, batch.refused)):
                await _each(connection, _insert(table.name, columns(table)), rows)
            # Last, as other shards add to the same rows.
            await _each(connection, _MINUTES, minutes)

    async def close(self) -> None:
        if self._held is not None:
            held, self._held = self._held, None
            await _close(held)

    @staticmethod
    async def _move_position(connection: Any, batch: Batch) -> None:
        key, before = (batch.source, batch.shard), batch.before
        if before is None:
            moved = await connection.fetchval(_FOUND, *key, *batch.after)
        else:
            moved = await connection.fetchval(_MOVED, *key, *batch.after, *before[:5])
        if not moved:
            raise Overtaken

    @staticmethod
    async def _write_jobs(connection: Any, rows: Sequence[Row]) -> None:
        jobs = split(rows)
        await _each(
            connection, _BODILESS, (of_job(row, "source", "id", "life", "ms", "seq", "n") for row in jobs.bodiless)
        )
        if jobs.told:
            await _copy(connection, "jq_new_job", JOB, jobs.told)
            await connection.execute(_JOBS)
        await _each(connection, _ASIDE, (of_job(row, "source", "id", "ms", "seq", "n", "at") for row in jobs.aside))

    @staticmethod
    async def _write_schedules(connection: Any, rows: Sequence[Row]) -> None:
        told, moved, gone = schedules.split(rows)
        await _each(connection, _SCHEDULES, told)
        for change, changed in ((schedules.MOVED, moved), (schedules.GONE, gone)):
            await _each(connection, change.sql(lambda number: f"${number}"), change.values(changed))

    def _give_up(self, patience: Patience) -> None:
        patience.lost()
        self._held.terminate()

    def _drop(self) -> None:
        """Close the connection without waiting for the server."""
        if self._held is not None:
            self._held.terminate()
            self._held = None

    @asynccontextmanager
    async def _connection(self, shard: int) -> AsyncIterator[Any]:
        """The connection. After an error it is closed, which undoes what was not committed."""
        patience = self._patience[shard]
        try:
            if self._held is None or self._held.is_closed():
                self._held = await connect(self._address)
                await self._held.execute(_NEW_JOBS)
            # Not a timeout of asyncio, whose end would wait for an answer to the cancellation.
            watch = asyncio.get_running_loop().call_later(patience.seconds, self._give_up, patience)
            try:
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
