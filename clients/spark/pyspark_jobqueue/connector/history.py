"""The reader for what=history, which reads the events of a journal in parallel by shard and hour; and the journal's
URL and queries.

The URL may contain a password, which no message and no `repr` shows. The URL is sent to the tasks, and each task opens
its own connection.
"""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qsl, unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_jobqueue.connector.columns import FIELDS, TYPES, Column, arrow_schema, option_of
from pyspark_jobqueue.connector.options import OF_SERVICE, OF_WRITES, Given, moment, secret_in
from pyspark_jobqueue.connector.read_options import topics_of, what_of
from pyspark_jobqueue.errors import BadOption, Unreachable

VARIABLE = "JOBQUEUE_JOURNAL"
_KINDS = {"sqlite": "sqlite", "postgresql": "postgresql", "mariadb": "mysql", "mysql": "mysql"}
_FORMS = "sqlite:///PATH, postgresql://HOST/DATABASE, mariadb://HOST/DATABASE, mysql://HOST/DATABASE"
_DRIVERS = {"postgresql": "asyncpg>=0.30,<1", "mysql": "asyncmy>=0.2.10,<0.3"}
_PAGE = 20_000  # rows
_CONNECT_S = 10
_PASSWORD = re.compile(r"^([^:/?#]*://[^/?#:@]*):.*@")  # up to the last @: a password may contain an unencoded @
_SECRET = re.compile(r"(?i)([?&][^=&#]*passw[^=&#]*=)[^&#]*")
Page = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Journal:
    """A journal by its URL. Pickled to the tasks."""

    url: str

    @classmethod
    def chosen(cls, url: str | None, file: str | None) -> Journal:
        """The journal from the option `journal`, from the file that `journalFile` names, or from the driver's
        environment. Raises BadOption."""
        if url is not None and file is not None:
            raise BadOption("options journal and journalFile exclude each other")
        given = secret_in(file, "journalFile") if file is not None else url or os.environ.get(VARIABLE)
        if not given:
            raise BadOption(f"the journal is not named: set option journal or journalFile, or {VARIABLE} of the driver")
        made = cls(given)
        if is_url(given) and (urlsplit(given).path.strip("/")):
            return made
        raise BadOption(f"option journal must be like {_FORMS}; {made.shown!r} is not")

    @property
    def kind(self) -> str:
        """sqlite, postgresql, or mysql (also for MariaDB)."""
        return _KINDS[urlsplit(self.url).scheme]

    @property
    def shown(self) -> str:
        """The URL without its password."""
        return _SECRET.sub(r"\1***", _PASSWORD.sub(r"\1:***@", self.url))

    def __repr__(self) -> str:
        return f"Journal({self.shown})"

    def pages(self, query: str, *values: Any) -> Iterator[Page]:
        """Yields the rows that a query selects, one page at a time. `?` is the placeholder for a value. Raises
        BadOption if the database driver is not installed, Unreachable for any error of the database."""
        try:
            if self.kind == "sqlite":
                yield from _sqlite(self.url, query, values)
            else:
                read = _postgresql if self.kind == "postgresql" else _mysql
                yield from _stepwise(read(self.url, query, values))
        except ModuleNotFoundError as error:
            scheme, library = urlsplit(self.url).scheme, _DRIVERS[self.kind]
            raise BadOption(
                f"a journal at {scheme}:// needs a library on the driver and on all executors ({error}): "
                f"pip install '{library}'"
            ) from None
        except Exception as error:  # each database driver has its own exceptions
            raise Unreachable(f"the journal {self.shown}: {error or type(error).__name__}") from None

    def all(self, query: str, *values: Any) -> Page:
        """All rows of a short result. Raises like `pages`."""
        return [row for page in self.pages(query, *values) for row in page]


def is_url(text: str) -> bool:
    """True if a text is the URL of a journal, and not, for example, the URL of a folder."""
    return text.partition("://")[0] in _KINDS and "://" in text


def _sqlite(url: str, query: str, values: tuple[Any, ...]) -> Iterator[Page]:
    path = Path(unquote(urlsplit(url).path.removeprefix("/")))
    if not path.is_file():
        raise OSError(f"there is no file {path} on this machine")
    with closing(sqlite3.connect(path)) as database:
        cursor = database.execute(query, values)
        while rows := cursor.fetchmany(_PAGE):
            yield rows


def _stepwise(pages: Any) -> Iterator[Page]:
    """Iterate over an asynchronous generator from synchronous code."""
    with asyncio.Runner() as runner:
        try:
            while True:
                try:
                    yield runner.run(anext(pages))
                except StopAsyncIteration:
                    return
        finally:
            runner.run(pages.aclose())


async def _postgresql(url: str, query: str, values: tuple[Any, ...]) -> Any:
    import asyncpg  # noqa: PLC0415 - an extra

    parts = query.split("?")
    numbered = parts[0] + "".join(f"${number}{part}" for number, part in enumerate(parts[1:], 1))
    connection = await asyncpg.connect(url, timeout=_CONNECT_S)
    try:
        async with connection.transaction(readonly=True):
            cursor = await connection.cursor(numbered, *values)
            while rows := await cursor.fetch(_PAGE):
                yield rows
    finally:
        connection.terminate()


async def _mysql(url: str, query: str, values: tuple[Any, ...]) -> Any:
    import asyncmy  # noqa: PLC0415 - an extra
    from asyncmy.cursors import SSCursor  # noqa: PLC0415

    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    connection = await asyncmy.connect(
        host=parts.hostname or "localhost",
        port=parts.port or 3306,
        user=unquote(parts.username or "") or None,
        password=unquote(parts.password or ""),
        db=unquote(parts.path.removeprefix("/")),
        unix_socket=options.get("unix_socket"),
        ssl=_tls(options),
        charset="utf8mb4",
        connect_timeout=_CONNECT_S,
    )
    try:
        cursor = connection.cursor(SSCursor)  # not closed: closing would read all remaining rows
        await cursor.execute(query.replace("?", "%s"), values)
        while rows := await cursor.fetchmany(_PAGE):
            yield rows
    finally:
        connection.close()


def _tls(options: dict[str, str]) -> ssl.SSLContext | None:
    """A context that checks certificates against `ssl_ca` or the system's authorities; None without TLS options."""
    if not any(name.startswith("ssl") for name in options):
        return None
    context = ssl.create_default_context(cafile=options.get("ssl_ca"))
    if "ssl_cert" in options:
        context.load_cert_chain(options["ssl_cert"], options.get("ssl_key"))
    return context


_HOUR_MS = 3_600_000
_MOVES = "branch >= 0"  # excludes events read by walks, which have a negative branch
_END_MS = 2**62  # the end of a history without option until


@dataclass(frozen=True)
class HistoryOptions:
    """Which events to read. Pickled to the tasks."""

    journal: Journal
    source: str | None
    topics: tuple[str, ...]
    """Names or patterns; empty for all topics."""
    since_ms: int
    until_ms: int

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Self:
        """Raises BadOption."""
        given = Given(options)
        what_of(given)
        now, topic = time.time(), given.text("topic")

        def ms(name: str, default: int) -> int:
            text = given.text(name)
            return default if text is None else round(moment(text, now, f"option {name}") * 1000)

        made = cls(
            Journal.chosen(given.text("journal"), given.text("journalFile")),
            given.text("source"),
            () if topic in (None, "*") else topics_of(topic),
            ms("since", 0),
            ms("until", _END_MS),
        )
        given.pass_over(*OF_SERVICE, *OF_WRITES, *map(option_of, FIELDS))  # other reads accept these too
        given.done()
        return made


class Hour(NamedTuple):
    """The part of a history that one task reads."""

    source: str
    shard: int
    begin_ms: int
    end_ms: int


class HistoryReader(DataSourceReader):
    """Reads events, one row each."""

    def __init__(self, options: HistoryOptions, wanted: Sequence[Column]) -> None:
        self._options, self._wanted = options, wanted

    def partitions(self) -> list[InputPartition]:
        """One partition for each hour with events and each shard, in this order. Raises BadOption, Unreachable."""
        shards = self._shards()
        return [InputPartition(Hour(*shard, *hour)) for hour in self._hours() for shard in shards] if shards else []

    def _shards(self) -> list[tuple[str, int]]:
        rows = self._options.journal.all("SELECT source, shard FROM jq_position ORDER BY source, shard")
        source = self._options.source
        if source is not None and source not in {row[0] for row in rows}:
            there = ", ".join(sorted({row[0] for row in rows})) or "none yet"
            raise BadOption(f"the journal has no source {source!r}; its sources: {there}")
        return [(row[0], row[1]) for row in rows if source in (None, row[0])]

    def _hours(self) -> Iterator[tuple[int, int]]:
        """The start and the end of each hour that has events, in ms."""
        query = f"SELECT ms FROM jq_event WHERE ms >= ? AND ms < ? AND {_MOVES} ORDER BY ms LIMIT 1"  # noqa: S608
        at, until = self._options.since_ms, self._options.until_ms
        while found := self._options.journal.all(query, at, until):
            begin = found[0][0] // _HOUR_MS * _HOUR_MS
            yield max(begin, self._options.since_ms), min(begin + _HOUR_MS, until)
            at = begin + _HOUR_MS

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The events of a partition. For why it may be None, see `_Reader.read` in reader.py."""
        hour: Hour | None = partition.value if partition else None
        if hour is None:
            return
        schema = arrow_schema(self._wanted)
        for page in self._options.journal.pages(*self._query(hour)):
            yield _batch(page, self._wanted, schema)

    def _query(self, hour: Hour) -> tuple[Any, ...]:
        names = ", ".join("at" if each.field == "time" else each.field for each in self._wanted) or "n"
        topics, values = _of_topics(self._options.journal.kind, self._options.topics)
        where = f"source = ? AND shard = ? AND ms >= ? AND ms < ? AND {_MOVES}{topics}"
        return f"SELECT {names} FROM jq_timeline WHERE {where}", *hour, *values  # noqa: S608 - our own words


def _of_topics(kind: str, topics: Sequence[str]) -> tuple[str, list[str]]:
    """An SQL condition and its values. Patterns must compare bytes, as LIKE does on servers and GLOB in SQLite."""
    if not topics:
        return "", []
    if kind == "sqlite":
        condition, values = "topic GLOB ?", list(topics)
    else:
        condition = "topic LIKE ? ESCAPE '!'"
        values = [topic.translate({37: "!%", 95: "!_", 42: "%", 63: "_"}) for topic in topics]
    return f" AND ({' OR '.join([condition] * len(values))})", values


def _batch(page: Page, columns: Sequence[Column], schema: pa.Schema) -> pa.RecordBatch:
    if not columns:  # the query only counts rows
        return pa.RecordBatch.from_struct_array(pa.array([{}] * len(page), pa.struct([])))
    arrays = [_array(each, values) for each, values in zip(columns, zip(*page, strict=True), strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(column: Column, values: Sequence[Any]) -> pa.Array:
    if column.kind == "boolean":
        return pa.array(map(bool, values))
    if column.kind != "timestamp":
        return pa.array(values, TYPES[column.kind])
    numbers = pa.array(values, pa.int64())  # in us for `time`, otherwise in ms; 0 for no time
    known = pc.if_else(pc.equal(numbers, 0), None, numbers)
    return (known if column.field == "time" else pc.multiply(known, 1000)).cast(TYPES[column.kind])
