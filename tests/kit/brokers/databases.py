"""Databases with an inbox: a file of SQLite, PostgreSQL, MariaDB."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from typing import Any

from sqlalchemy import text

from jobqueue.journal.database import engine_of
from jobqueue.journal.url import address
from jobqueue.sinks.sql import inbox
from tests.kit import databases
from tests.kit.brokers import Broker, Received


class Database(Broker):
    """What all of them have."""

    kind = "sql"
    drops_repetitions = True
    url: str

    async def prepare(self, topics: list[str]) -> None:
        engine = await engine_of(address(self.url))
        async with engine.begin() as connection:
            await connection.run_sync(inbox("jobqueue_inbox").create)
        await engine.dispose()

    def table(self) -> dict[str, Any]:
        return {"kind": "sql", "url": self.url}

    async def received(self) -> list[Received]:
        rows = await self.rows("SELECT message_key, headers, body FROM jobqueue_inbox")
        return [Received(row[0], json.loads(row[1]), row[2].encode()) for row in rows]

    async def rows(self, query: str) -> list[Any]:
        """The rows of a query."""
        engine = await engine_of(address(self.url))
        async with engine.begin() as connection:
            result = await connection.execute(text(query))
            rows = list(result.all()) if result.returns_rows else []
        await engine.dispose()
        return rows

    async def set_read_only(self, *, read_only: bool) -> None:
        """Let nothing be written any more, as after a failover, or again."""
        raise NotImplementedError

    def end_sessions(self) -> None:
        """End all connections to it."""
        raise NotImplementedError


class _Served(Database):
    server: databases.Server

    def command(self) -> list[str]:
        return self.server.command()

    async def answers(self) -> bool:
        return True

    async def start(self) -> None:
        if not hasattr(self, "server"):
            self.server = await asyncio.to_thread(self.new_server)
            await asyncio.to_thread(self.server.prepare)
            await asyncio.to_thread(self.server.start)
            self.url = await asyncio.to_thread(self.server.new_database)
        else:
            await asyncio.to_thread(self.server.start)

    def new_server(self) -> databases.Server:
        raise NotImplementedError

    @property
    def name(self) -> str:
        """Of the database."""
        return self.url.partition("@/")[2].partition("?")[0]

    def kill(self) -> None:
        if hasattr(self, "server"):
            self.server.kill()

    def remove(self) -> None:
        super().remove()
        if hasattr(self, "server"):
            self.server.remove()

    def freeze(self) -> None:
        self.server.freeze()

    def thaw(self) -> None:
        if hasattr(self, "server"):
            self.server.thaw()


class PostgreSQL(_Served):
    def new_server(self) -> databases.Server:
        return databases.PostgreSQL()

    async def set_read_only(self, *, read_only: bool) -> None:
        """For new sessions; the others are ended."""
        name = self.name
        setting = "SET default_transaction_read_only = on" if read_only else "RESET default_transaction_read_only"
        self.server.sql(f"ALTER DATABASE {name} {setting}")
        self.end_sessions()

    def end_sessions(self) -> None:
        self.server.sql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{self.name}'")  # noqa: S608


class MariaDB(_Served):
    def new_server(self) -> databases.Server:
        return databases.MariaDB()

    async def start(self) -> None:
        await super().start()
        if "root@" in self.url:
            self.server.sql(f"CREATE USER sink@localhost; GRANT ALL ON {self.name}.* TO sink@localhost")
            self.url = self.url.replace("root@", "sink@")

    async def set_read_only(self, *, read_only: bool) -> None:
        """For everybody but root."""
        self.server.sql(f"SET GLOBAL read_only = {int(read_only)}")

    def end_sessions(self) -> None:
        self.server.sql("KILL CONNECTION USER sink@localhost")


class SQLite(Database):
    """Frozen: another transaction holds it. Killed: its file is away."""

    def __init__(self) -> None:
        super().__init__()
        self.file = self.folder / "inbox.db"
        self.url = f"sqlite:///{self.file}"
        self._holder: sqlite3.Connection | None = None

    def command(self) -> list[str]:
        raise NotImplementedError

    async def answers(self) -> bool:
        return True

    async def start(self) -> None:
        away = self.file.with_suffix(".away")
        if away.exists():
            away.replace(self.file)

    def kill(self) -> None:
        if self.file.exists():
            self.file.replace(self.file.with_suffix(".away"))

    def freeze(self) -> None:
        self._holder = sqlite3.connect(self.file, isolation_level=None)
        self._holder.execute("BEGIN EXCLUSIVE")

    def thaw(self) -> None:
        if self._holder is not None:
            self._holder.close()
            self._holder = None
