"""The sink, and its settings."""

from __future__ import annotations

import contextlib
from typing import Annotated

from msgspec import Meta
from sqlalchemy import inspect
from sqlalchemy.ext.asyncio import AsyncEngine

from jobqueue.journal import url as urls
from jobqueue.journal.database import engine_of
from jobqueue.journal.store import Away
from jobqueue.sinks import Common, Down, Events, Message
from jobqueue.sinks.sql.batches import Batches
from jobqueue.sinks.sql.inbox import NoTable, ddl, inbox, insert_of, insert_of_nothing, judged, row_of


class Settings(Common, frozen=True, kw_only=True):
    url: Annotated[str, Meta(min_length=1)]
    """As of a journal: sqlite, postgresql, mariadb, mysql; TLS stands in it."""
    table: Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,62}\Z")] = "jobqueue_inbox"
    schemes = urls.SCHEMES

    def __post_init__(self) -> None:
        if self.tls_ca or self.tls_cert or self.tls_key:
            raise ValueError("TLS of a database is set in its url, as options")


class Sink:
    """An engine of its own, on which one transaction at a time runs."""

    def __init__(self, settings: Settings, events: Events) -> None:
        self._settings = settings
        self._table = inbox(settings.table)
        self._engine: AsyncEngine | None = None
        self._batches = Batches(self._write)

    async def connect(self) -> None:
        try:
            self._where = urls.address(self._settings.url)
            self._engine = engine = await engine_of(self._where)
            self._insert = insert_of(self._where, self._table)
            async with engine.begin() as connection:
                await connection.execute(insert_of_nothing(self._table))
        except (urls.Refused, Away) as error:
            raise Down(str(error)) from None
        except Exception as error:
            fault = judged(error)
            cure = ddl(self._where, self._table) if isinstance(fault, NoTable) else ""
            raise Down(str(fault), cure=cure) from None

    async def send(self, message: Message) -> None:
        if self._engine is None:
            raise Down("no connection")
        await self._batches.send(message)

    async def check(self) -> list[str]:
        assert self._engine
        async with self._engine.connect() as connection:
            columns = await connection.run_sync(lambda sync: inspect(sync).get_columns(self._table.name))
        there = ", ".join(column["name"] for column in columns)
        return [f"table {self._table.name} has {there}"]

    async def close(self) -> None:
        await self._batches.close()
        engine, self._engine = self._engine, None
        if engine is not None:
            with contextlib.suppress(Exception):  # whatever its state, it is of no use any more
                await engine.dispose()

    async def _write(self, messages: list[Message]) -> list[Exception | None]:
        """Write all in one transaction; where that fails by one of them, each in its own."""
        error = await self._written(messages)
        if error is None:
            return [None for _ in messages]
        if isinstance(error, Down) or len(messages) == 1:
            return [error for _ in messages]
        return [await self._written([message]) for message in messages]

    async def _written(self, messages: list[Message]) -> Exception | None:
        if self._engine is None:
            return Down("no connection")
        try:
            async with self._engine.begin() as connection:
                await connection.execute(self._insert, [row_of(message) for message in messages])
        except Exception as error:
            return judged(error)
        return None
