"""MariaDB and MySQL, with asyncmy: up to 1,000 rows per statement."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import unquote, urlsplit

import asyncmy
from asyncmy import errors
from asyncmy.converters import escape_float, escape_int, escape_None, escape_sequence, escape_str
from sqlalchemy import Table

from jobqueue.journal import schedules, tables
from jobqueue.journal.statements import (
    JOB,
    MINUTE,
    SCHEDULE,
    Jobs,
    assignments,
    columns,
    job_changes,
    minute_changes,
    of_job,
    schedule_changes,
)
from jobqueue.journal.store import Away, Batch, ContentRefused, Overtaken, Row
from jobqueue.journal.stores import ServerStore
from jobqueue.journal.url import Address, Refused

DRIVER = "asyncmy"
OLDEST_MARIADB, OLDEST_MYSQL = (10, 6), (8, 0)
_CONNECT_S = 10
_MOST_ROWS, _MOST_BYTES = 1000, 4_000_000  # of a statement; MariaDB accepts 16 MB by default
_OPTIONS = ("unix_socket", "ssl", "ssl_ca", "ssl_cert", "ssl_key")
_UNUSABLE = {1044, 1045, 1049, 1251, 1698}  # no permission, wrong password, no such database
_CONTENT = {1048, 1153, 1264, 1292, 1300, 1366, 1406, 1690, 2020}  # in addition to those that the driver knows
_NEW = "VALUES({})"
_NEWER = "(VALUES(ms), VALUES(seq), VALUES(n)) > ({0}.ms, {0}.seq, {0}.n)"


def _where_newer(table: str, changes: dict[str, str], last: Sequence[str]) -> str:
    """Assignments that only change a row that is older. MySQL makes them one after the other, so the columns that the
    others depend on come last, and the place in reverse order, so that what is left of the comparison has the same
    result."""
    names = [*(name for name in changes if name not in last), *last]
    newer = _NEWER.format(table)
    return assignments({name: f"IF({newer}, {changes[name]}, {table}.{name})" for name in names})


_CHANGE_JOBS = f" ON DUPLICATE KEY UPDATE {_where_newer('jq_job', job_changes(_NEW), ('life', 'n', 'seq', 'ms'))}"
_SCHEDULE_CHANGES = _where_newer("jq_schedule", schedule_changes(_NEW), ("n", "seq", "ms"))
_CHANGE_SCHEDULES = f" ON DUPLICATE KEY UPDATE {_SCHEDULE_CHANGES}"
_CHANGE_MINUTES = f" ON DUPLICATE KEY UPDATE {assignments(minute_changes(_NEW, 'GREATEST'))}"
_BODILESS = (
    "UPDATE jq_job SET body = NULL, body_kept = 2 "
    "WHERE source = %s AND id = %s AND life = %s AND (ms, seq, n) < (%s, %s, %s)"
)
_ASIDE = (
    "UPDATE jq_job SET state = 0, at = %s, ended = %s, n = %s, seq = %s, ms = %s "
    "WHERE source = %s AND id = %s AND (ms, seq, n) < (%s, %s, %s)"
)
_POSITION = "SELECT epoch, ms, seq, entries, stream, since, time FROM jq_position WHERE source = %s AND shard = %s"
_MOVED = (
    "UPDATE jq_position SET epoch = %s, ms = %s, seq = %s, entries = %s, stream = %s, since = %s, time = %s "
    "WHERE source = %s AND shard = %s"
)
_KNOWN = "SELECT ms, seq, n, branch, checksum FROM jq_event WHERE ms BETWEEN %s AND %s AND source = %s AND shard = %s"
_BODY, _KEPT = JOB.index("body"), JOB.index("body_kept")
_LITERALS = {
    str: escape_str,  # also for types that are not listed
    int: escape_int,
    float: escape_float,
    type(None): escape_None,
    bytes: lambda value, _: f"x'{value.hex()}'",
}


async def connect(address: Address) -> Any:
    """An asyncmy connection. Raises Refused, Away."""
    parts, options = urlsplit(address.url), address.options
    if unknown := set(options) - set(_OPTIONS):
        raise Refused(f"{address.shown}: unknown option {min(unknown)}; expected one of {', '.join(_OPTIONS)}")
    tls = _tls(address)
    try:
        return await asyncio.wait_for(
            asyncmy.connect(
                host=parts.hostname or "localhost",
                port=parts.port or 3306,
                user=unquote(parts.username or "") or None,
                password=unquote(parts.password or ""),
                db=address.database,
                unix_socket=options.get("unix_socket"),
                ssl=tls,
                charset="utf8mb4",
                connect_timeout=_CONNECT_S,
                # Values are never truncated to fit; backslashes in strings are escapes, as `_literals` writes them.
                sql_mode="'STRICT_ALL_TABLES'",
                init_command="SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
            ),
            _CONNECT_S,
        )
    except errors.MySQLError as error:
        if error.args and error.args[0] in _UNUSABLE:
            raise Refused(f"{address.shown} cannot be used: {_message(error)}") from None
        raise Away(_message(error)) from error
    except (OSError, TimeoutError) as error:
        raise Away(f"{type(error).__name__}: {error}") from error


def _tls(address: Address) -> ssl.SSLContext | None:
    """The TLS context, or None without TLS. Certificates are checked against `ssl_ca` or those of the system. Raises
    Refused."""
    options = address.options
    if options.get("ssl", "true") != "true":
        raise Refused(f"{address.shown}: ssl={options['ssl']} is unknown; there is ssl=true, and without it no TLS")
    if not any(name.startswith("ssl") for name in options):
        return None
    try:
        context = ssl.create_default_context(cafile=options.get("ssl_ca"))
        if "ssl_cert" in options:
            context.load_cert_chain(options["ssl_cert"], options.get("ssl_key"))
    except OSError as error:  # the error does not name the file
        raise Refused(f"{address.shown}: a file of TLS cannot be read: {error.strerror or error}") from None
    return context


def _message(error: Exception) -> str:
    return ": ".join(map(str, error.args)) or type(error).__name__


async def check_server(address: Address) -> None:
    """Raises Refused if the server is too old, Away if it cannot be reached."""
    connection = await connect(address)
    try:
        ((version,),) = await _select(connection, "SELECT VERSION()")
    except (errors.MySQLError, OSError) as error:
        raise Away(_message(error)) from error
    finally:
        connection.close()
    check_version(version)


def check_version(version: str) -> None:
    """Raises Refused if the version is too old."""
    numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
    name, oldest = ("MariaDB", OLDEST_MARIADB) if "MariaDB" in version else ("MySQL", OLDEST_MYSQL)
    if numbers < oldest:
        raise Refused(f"{name} {version} is older than {oldest[0]}.{oldest[1]}")


def make(address: Address) -> MySQLStore:
    return MySQLStore(address)


class MySQLStore(ServerStore):
    select_position, select_known = _POSITION, _KNOWN

    async def close(self) -> None:
        if self._held is not None:
            self._held.close()
            self._held = None

    async def select(self, connection: Any, statement: str, values: Row) -> Sequence[Row]:
        return await _select(connection, statement, values)

    async def insert(self, connection: Any, table: Table, rows: Sequence[Row]) -> None:
        await _insert(connection, table.name, columns(table), rows)

    async def move_position(self, connection: Any, batch: Batch) -> None:
        key, before = (batch.source, batch.shard), batch.before
        found = await _select(connection, f"{_POSITION} FOR UPDATE", key)
        if [row[:5] for row in found] != ([] if before is None else [before[:5]]):
            raise Overtaken
        if before is None:
            try:
                await self.insert(connection, tables.position, [(*key, *batch.after)])
            except errors.IntegrityError:
                raise Overtaken from None
        else:
            await _run(connection, _MOVED, (*batch.after, *key))

    async def write_jobs(self, connection: Any, jobs: Jobs) -> None:
        for row in jobs.bodiless:
            await _run(connection, _BODILESS, of_job(row, "source", "id", "life", "ms", "seq", "n"))
        told = [_without_body(row) if row[_BODY] is None and row[_KEPT] == 1 else row for row in jobs.told]
        await _insert(connection, "jq_job", JOB, told, _CHANGE_JOBS)
        for row in jobs.aside:
            changed = of_job(row, "at", "at", "n", "seq", "ms", "source", "id", "ms", "seq", "n")
            await _run(connection, _ASIDE, changed)

    async def write_schedules(self, connection: Any, rows: Sequence[Row]) -> None:
        told, moved, gone = schedules.split(rows)
        await _insert(connection, "jq_schedule", SCHEDULE, told, _CHANGE_SCHEDULES)
        for change, changed in ((schedules.MOVED, moved), (schedules.GONE, gone)):
            for values in change.values(changed):
                await _run(connection, change.sql(lambda _: "%s"), values)

    async def add_minutes(self, connection: Any, rows: Sequence[Row]) -> None:
        await _insert(connection, "jq_minute", MINUTE, rows, _CHANGE_MINUTES)

    @asynccontextmanager
    async def transaction(self, shard: int) -> AsyncIterator[Any]:
        patience = self._patience[shard]
        waiting: asyncio.Timeout | None = None
        try:
            if self._held is None or not self._held.connected:
                self._held = await connect(self._address)
            async with asyncio.timeout(patience.seconds) as waiting:
                await self._held.begin()
                yield self._held
                await self._held.commit()
            patience.regained()
        except BaseException as error:
            await self.close()
            if waiting is not None and waiting.expired():
                patience.lost()
            if _is_content(error):
                raise ContentRefused(f"{type(error).__name__}: {error}") from error
            if isinstance(error, (errors.MySQLError, OSError, Refused)):
                raise Away(f"{type(error).__name__}: {error}") from error
            raise


def _is_content(error: BaseException) -> bool:
    if isinstance(error, errors.MySQLError):
        refused = isinstance(error, (errors.DataError, errors.IntegrityError))
        return refused or bool(error.args and error.args[0] in _CONTENT)
    return isinstance(error, UnicodeError)


def _without_body(row: Row) -> Row:
    """The row of a job whose body is not known: if the existing row does not have the body, the journal missed it."""
    return (*row[:_KEPT], 2, *row[_KEPT + 1 :])


def _literals(row: Row) -> str:
    return escape_sequence(row, "utf8mb4", _LITERALS)


async def _run(connection: Any, statement: str, values: Row) -> None:
    await connection.query(statement % tuple(_literals((value,))[1:-1] for value in values))


async def _select(connection: Any, statement: str, values: Row = ()) -> Sequence[Row]:
    async with connection.cursor() as cursor:
        await cursor.execute(statement, values or None)
        found: Sequence[Row] = await cursor.fetchall()
        return found


async def _insert(connection: Any, table: str, names: Sequence[str], rows: Iterable[Row], ending: str = "") -> None:
    for written in _portions(map(_literals, rows)):
        await connection.query(f"INSERT INTO {table} ({', '.join(names)}) VALUES {written}{ending}")


def _portions(rows: Iterable[str]) -> Iterator[str]:
    """Rows joined into portions, each small enough for one statement."""
    held: list[str] = []
    size = 0
    for row in rows:
        if held and (len(held) == _MOST_ROWS or size + len(row) > _MOST_BYTES):
            yield ",".join(held)
            held, size = [], 0
        held.append(row)
        size += len(row)
    if held:
        yield ",".join(held)
