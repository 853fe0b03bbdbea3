"""The journal that a history is read from: its URL, and queries to its database.

The URL may have a password: no message and no `repr` shows it. It travels to the tasks, and each opens a connection.
"""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
import ssl
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from pyspark_jobqueue.connector.token import secret_in
from pyspark_jobqueue.errors import BadOption, Unreachable

VARIABLE = "JOBQUEUE_JOURNAL"
_KINDS = {"sqlite": "sqlite", "postgresql": "postgresql", "mariadb": "mysql", "mysql": "mysql"}
_FORMS = "sqlite:///PATH, postgresql://HOST/DATABASE, mariadb://HOST/DATABASE, mysql://HOST/DATABASE"
_DRIVERS = {"postgresql": "asyncpg>=0.30,<1", "mysql": "asyncmy>=0.2.10,<0.3"}
_PAGE = 20_000  # rows
_CONNECT_S = 10
_PASSWORD = re.compile(r"^([^:/?#]*://[^/?#:@]*):.*@")  # to the last @: a password may have what should be encoded
_SECRET = re.compile(r"(?i)([?&][^=&#]*passw[^=&#]*=)[^&#]*")
Page = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Journal:
    """A journal by its URL. Pickled to the tasks."""

    url: str

    @classmethod
    def chosen(cls, url: str | None, file: str | None) -> Journal:
        """That of the option `journal`, of the file that `journalFile` names, or of the driver's environment. Raises
        BadOption."""
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
        """sqlite, postgresql, or mysql, which is MariaDB too."""
        return _KINDS[urlsplit(self.url).scheme]

    @property
    def shown(self) -> str:
        """The URL without its password."""
        return _SECRET.sub(r"\1***", _PASSWORD.sub(r"\1:***@", self.url))

    def __repr__(self) -> str:
        return f"Journal({self.shown})"

    def pages(self, query: str, *values: Any) -> Iterator[Page]:
        """The rows that a query selects, some at a time; `?` stands for each value. Raises BadOption where the driver
        is not installed, Unreachable for whatever the database says."""
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
        except Exception as error:  # each driver has its own
            raise Unreachable(f"the journal {self.shown}: {error or type(error).__name__}") from None

    def all(self, query: str, *values: Any) -> Page:
        """All rows of a short answer. Raises like `pages`."""
        return [row for page in self.pages(query, *values) for row in page]


def is_url(text: str) -> bool:
    """Whether a text is the URL of a journal, and not, say, that of a folder."""
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
    """What an asynchronous generator yields."""
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
        cursor = connection.cursor(SSCursor)  # not closed: that would read all that is left
        await cursor.execute(query.replace("?", "%s"), values)
        while rows := await cursor.fetchmany(_PAGE):
            yield rows
    finally:
        connection.close()


def _tls(options: dict[str, str]) -> ssl.SSLContext | None:
    """Certificates are checked, by `ssl_ca` or the system's."""
    if not any(name.startswith("ssl") for name in options):
        return None
    context = ssl.create_default_context(cafile=options.get("ssl_ca"))
    if "ssl_cert" in options:
        context.load_cert_chain(options["ssl_cert"], options.get("ssl_key"))
    return context
