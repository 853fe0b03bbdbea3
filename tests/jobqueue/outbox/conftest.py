"""An empty outbox in each kind of database."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest_asyncio
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from jobqueue.journal.database import engine_of
from jobqueue.journal.url import address
from jobqueue.outbox.table import ddl
from tests.jobqueue.journal.conftest import Database, journal_database, mariadb, postgresql  # noqa: F401 - fixtures


class Outbox:
    """The table, as the programs that write to it see it."""

    def __init__(self, database: Database, engine: AsyncEngine) -> None:
        self.database, self.engine = database, engine

    @property
    def url(self) -> str:
        return self.database.url

    async def write(self, *rows: dict[str, Any], commit: bool = True) -> None:
        """Write rows in one transaction. Each has the columns of the table; bodies and options are values."""
        async with self.engine.connect() as connection:
            for row in rows:
                given = {
                    name: json.dumps(value) if name in ("body", "options") else value for name, value in row.items()
                }
                names = ", ".join(given)
                values = ", ".join(f":{name}" for name in given)
                await connection.execute(text(f"INSERT INTO jobqueue_outbox ({names}) VALUES ({values})"), given)  # noqa: S608
            await (connection.commit() if commit else connection.rollback())

    async def rows(self) -> list[tuple[str, str | None]]:
        """The rows that are left: id and error."""
        async with self.engine.connect() as connection:
            found = await connection.execute(text("SELECT id, error FROM jobqueue_outbox ORDER BY number"))
            return [(row[0], row[1]) for row in found]

    async def is_empty(self) -> bool:
        return not await self.rows()

    async def sql(self, statement: str) -> None:
        async with self.engine.connect() as connection:
            await connection.execute(text(statement))
            await connection.commit()


@pytest_asyncio.fixture
async def outbox(journal_database: Database) -> AsyncIterator[Outbox]:  # noqa: F811 - the fixture
    where = address(journal_database.url)
    made = ddl(where.kind)
    if journal_database.server is None:
        with sqlite3.connect(where.path) as connection:
            connection.executescript("PRAGMA journal_mode = WAL;" + made)
    else:
        journal_database.server.sql(made, where.database)
    engine = await engine_of(where)
    yield Outbox(journal_database, engine)
    await engine.dispose()


def adds(ids: Sequence[str], **columns: Any) -> list[dict[str, Any]]:
    return [{"id": each, "topic": "t", "body": {"of": each}, **columns} for each in ids]
