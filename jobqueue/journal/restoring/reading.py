"""Reading a journal: queries that wait for a database that is away, and rows of jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Executable, Select, select
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.ext.asyncio import AsyncEngine

from jobqueue.journal import choices, tables
from jobqueue.journal.choices import Change
from jobqueue.journal.restoring.choice import Stopped

PATIENCE_S = 60.0  # for a database, a Redis, or a journal that does not get on
_AGAIN_S = 0.5


class JobRow(NamedTuple):
    """A row of `jq_job`; its columns are described in tables.py."""

    source: str
    id: str
    shard: int
    life: int
    topic: str
    state: int
    priority: int
    cause: int
    due: int
    next: int
    ttr: int
    tries: int
    attempts: int
    deliveries: int
    step: int
    lease: int
    keeps_body: int
    options: bytes | None
    worker: str | None
    reason: str | None
    body: str | None
    body_kept: int
    ms: int
    seq: int
    n: int
    at: int
    ended: int | None

    @property
    def place(self) -> tuple[int, int, int]:
        """Of what was last told."""
        return self.ms, self.seq, self.n


JOB_COLUMNS = [tables.job.c[name] for name in JobRow._fields]


class Reading:
    """A journal of one source."""

    def __init__(self, engine: AsyncEngine, source: str, patience_s: float = PATIENCE_S) -> None:
        self._engine = engine
        self.source = source
        self.patience_s = patience_s

    async def rows(self, statement: Select[Any]) -> Sequence[Any]:
        """The rows of a query. Raises Stopped when the database is away for too long."""
        rows: Sequence[Any] = (await self.run(statement)).all()
        return rows

    async def run(self, *statements: Executable) -> Any:
        """Run statements that may be repeated, in a transaction of their own; the result of the last one, which is read
        whole. Raises Stopped."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self.patience_s
        while True:
            try:
                async with self._engine.begin() as connection:
                    for statement in statements:
                        result = await connection.execute(statement)
                return result
            except (OperationalError, InterfaceError, OSError) as error:
                if loop.time() > end:
                    raise Stopped(f"the journal cannot be reached: {_words(error)}") from error
                await asyncio.sleep(_AGAIN_S)

    async def jobs(self, ids: Sequence[str]) -> dict[str, JobRow]:
        """The rows of jobs, by id."""
        wanted = select(*JOB_COLUMNS).where(tables.job.c.source == self.source, tables.job.c.id.in_(ids))
        return {row.id: JobRow(*row) for row in await self.rows(wanted)} if ids else {}

    def of_source(self, table: Any) -> ColumnElement[bool]:
        """The condition that a row is of this source."""
        condition: ColumnElement[bool] = table.c.source == self.source
        return condition


async def kept(reading: Reading) -> list[Change]:
    """Which events and bodies the journal keeps, and since when. Raises Stopped."""
    return choices.changes(await reading.rows(choices.query(reading.source)))


def _words(error: Exception) -> str:
    return str(error.orig) if isinstance(error, DBAPIError) else str(error)
