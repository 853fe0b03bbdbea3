"""Opens a journal by its URL: an engine for readers, a store for the writer."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import URL, Connection
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from jobqueue.journal import schema
from jobqueue.journal.store import Away, Store
from jobqueue.journal.stores import sqlite
from jobqueue.journal.url import Address, Empty, Refused, address

_Result = TypeVar("_Result")
_AGAIN_S = 0.01  # the pause before a locked file is tried again
# Errors that a retry cannot fix, by their texts: the drivers have no common codes for them.
_FORBIDDEN = ("permission denied", "command denied", "readonly database")
_NO_DATABASE = ("unable to open database file", "not a database")


async def open_engine(url: str) -> AsyncEngine:
    """An engine for reading an existing journal; close it with `dispose`.

    Raises Refused if the journal cannot be used, Away if it cannot be reached.
    """
    where = address(url)
    if where.kind == "sqlite":
        _must_exist(Path(where.path))
    return await _opened(where, schema.check)


async def open_store(url: str) -> Store:
    """A store for one writer; an empty database gets its tables. Raises Refused and Away, as `open_engine` does."""
    where = address(url)
    if where.kind == "sqlite":
        _keep_from_others(where.path)
        await _set_up(where)
    await (await _opened(where, schema.found_or_check)).dispose()
    if where.kind == "sqlite":
        return sqlite.SQLiteStore(where)
    store: Store = import_module(f"jobqueue.journal.stores.{where.kind}").make(where)
    return store


async def _set_up(where: Address) -> None:
    """Apply the settings that SQLite must have in a file before its first table is created. Raises Refused and Away."""
    until = time.monotonic() + sqlite.LOCKED_S
    async with _engine(where) as engine:
        while True:
            try:
                return await run_in(engine, schema.set_up_sqlite)
            except Away:  # SQLite does not wait here while another process does the same
                if time.monotonic() > until:
                    raise
            await asyncio.sleep(_AGAIN_S)


async def migrate(url: str) -> tuple[str, str]:
    """Bring the tables up to date. Returns the revisions before and after. Raises Refused, Away."""
    where = address(url)
    async with _engine(where) as engine:
        return await run_in(engine, schema.migrate)


async def _opened(where: Address, check: Callable[[Connection], None]) -> AsyncEngine:
    engine = await engine_of(where)
    try:
        await run_in(engine, check)
    except BaseException:
        await engine.dispose()
        raise
    return engine


@asynccontextmanager
async def _engine(where: Address) -> AsyncIterator[AsyncEngine]:
    engine = await engine_of(where)
    try:
        yield engine
    finally:
        await engine.dispose()


async def engine_of(where: Address) -> AsyncEngine:
    """An engine for a server, which must answer and be new enough, or for a file. Raises Refused, Away."""
    if where.kind == "sqlite":
        sqlite.check_version()
        _must_have_folder(where.path)
        # Without a pool: a connection to a file costs nothing, and no connection is left behind in a thread.
        file = URL.create("sqlite+aiosqlite", database=where.path)
        options = {"timeout": sqlite.LOCKED_S, "factory": sqlite.RolledBack}
        return create_async_engine(file, connect_args=options, poolclass=NullPool)
    member: Any = import_module(f"jobqueue.journal.stores.{where.kind}")
    await member.check_server(where)
    return create_async_engine(f"{where.kind}+{member.DRIVER}://", async_creator=lambda: member.connect(where))


async def run_in(engine: AsyncEngine, work: Callable[[Connection], _Result]) -> _Result:
    """Run `work` on a connection, without a commit. Raises Refused, Away."""
    try:
        async with engine.connect() as connection:
            return await connection.run_sync(work)
    except (SQLAlchemyError, OSError) as error:
        said = str(getattr(error, "orig", None) or error)
        if any(words in said for words in _FORBIDDEN):
            raise Refused(
                f"{said}; where programs may not make tables, run what `jobqueue journal ddl` prints"
            ) from None
        if any(words in said for words in _NO_DATABASE):
            raise Refused(said) from None
        raise Away(said) from error


def _keep_from_others(path: str) -> None:
    """Create the file, if it does not exist, for its owner only: it will hold the bodies of jobs.

    An existing file is not opened: closing it would end this process's locks on it, which SQLite relies on
    (https://www.sqlite.org/howtocorrupt.html, 2.2).
    """
    with contextlib.suppress(OSError):  # reported when the file is opened
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _must_exist(path: Path) -> None:
    if not path.exists():
        folder = path.absolute().parent
        if not (folder.is_dir() and os.access(folder, os.W_OK)):
            raise Refused(f"there is no file {path}, and none can be made in {folder}")
        raise Empty(f"there is no file {path}; `jobqueue journal run` creates a journal")


def _must_have_folder(path: str) -> None:
    folder = Path(path).absolute().parent
    if not folder.is_dir():
        raise Refused(f"there is no folder {folder}")
