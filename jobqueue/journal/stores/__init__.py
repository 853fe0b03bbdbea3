"""The stores (../store.py) that write a journal into a database, and their connections, one file for each kind of
database.

`ServerStore` has what the stores of database servers share: what a transaction writes, and in which order. `Patience`
is how long a store waits for a transaction before its server counts as away.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import structlog
from sqlalchemy import Table

from jobqueue.journal import tables
from jobqueue.journal.statements import Jobs, Known, span, split, without_known
from jobqueue.journal.store import Batch, Position, Row
from jobqueue.journal.url import Address

log = structlog.get_logger()

SHORTEST_S, LONGEST_S = 60.0, 3600.0


class Patience:
    """How long to wait for a transaction. The time doubles after each transaction that took longer, because the same
    one is tried again, and would take as long."""

    def __init__(self) -> None:
        self.seconds = SHORTEST_S

    def lost(self) -> None:
        """A transaction took longer, and was aborted."""
        waited, self.seconds = self.seconds, min(2 * self.seconds, LONGEST_S)
        log.warning("database.slow", waited_s=waited, next_s=self.seconds)

    def regained(self) -> None:
        """A transaction was done in time."""
        self.seconds = SHORTEST_S


class ServerStore:
    """A store on one connection, which is opened when it is first needed, and again after an error."""

    select_position: str
    select_known: str

    def __init__(self, address: Address) -> None:
        self._address = address
        self._held: Any = None
        self._patience: defaultdict[int, Patience] = defaultdict(Patience)  # by shard: other shards continue meanwhile

    async def position(self, source: str, shard: int) -> Position | None:
        async with self.transaction(shard) as connection:
            found = await self.select(connection, self.select_position, (source, shard))
            return Position(*found[0]) if found else None

    async def write(self, batch: Batch) -> None:
        async with self.transaction(batch.shard) as connection:
            await self.move_position(connection, batch)
            events, minutes = batch.events, batch.minutes
            if batch.may_repeat and events:
                found = await self.select(connection, self.select_known, (*span(batch), batch.source, batch.shard))
                events, minutes = without_known(batch, map(Known._make, found))
            await self.insert(connection, tables.event, events)
            await self.write_jobs(connection, split(batch.jobs))
            if batch.schedules:
                await self.write_schedules(connection, batch.schedules)
            await self.insert(connection, tables.gap, batch.gaps)
            await self.insert(connection, tables.refused, batch.refused)
            # Last, because other shards add to the same rows.
            await self.add_minutes(connection, minutes)

    def transaction(self, shard: int) -> AbstractAsyncContextManager[Any]:
        """A transaction on the connection. After an error, the connection is closed, which undoes what was not
        committed. Raises ContentRefused, Away."""
        raise NotImplementedError

    async def select(self, connection: Any, statement: str, values: Row) -> Sequence[Row]:
        raise NotImplementedError

    async def insert(self, connection: Any, table: Table, rows: Sequence[Row]) -> None:
        """Insert rows whose places are free."""
        raise NotImplementedError

    async def move_position(self, connection: Any, batch: Batch) -> None:
        """Raises Overtaken."""
        raise NotImplementedError

    async def write_jobs(self, connection: Any, jobs: Jobs) -> None:
        raise NotImplementedError

    async def write_schedules(self, connection: Any, rows: Sequence[Row]) -> None:
        raise NotImplementedError

    async def add_minutes(self, connection: Any, rows: Sequence[Row]) -> None:
        raise NotImplementedError
