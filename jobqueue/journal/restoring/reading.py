"""The options of a run of restore, and what it reports; queries that wait while the database is away; rows of jobs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple, Self

from sqlalchemy import ColumnElement, Executable, Select, select
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.ext.asyncio import AsyncEngine

from buckets.job import State
from jobqueue.journal import choices, tables
from jobqueue.journal.choices import Change

PENDING = (State.RESERVED, State.READY, State.DELAYED)
"""The states of jobs that come back unless others are named, in the order in which they come back."""
ENDED = (State.FINISHED, State.DELETED)
Overdue = Literal["run", "skip", "dead"]


@dataclass(frozen=True, slots=True)
class Choice:
    """Which jobs come back, and how."""

    ids: tuple[str, ...] = ()
    """Empty for all jobs of the topics."""
    topics: str = "*"
    """Patterns (buckets/topics/within.py)."""
    states: tuple[int, ...] = PENDING
    """The states of the live jobs that come back. Tombstones that have not expired come back, too. Jobs that are named
    come back in any state."""
    overdue: Overdue = "run"
    """What becomes of delayed and ready jobs whose time has passed: `run` makes them ready, `skip` leaves them out,
    `dead` makes them dead letters."""
    spread_s: float = 0.0
    """Overdue jobs become due evenly over this many seconds, in the order of their time."""
    as_of: int | None = None
    """us since the epoch: jobs come back as they were then."""

    @property
    def has_schedules(self) -> bool:
        """Returns True if schedules come back, too: no ids were named, and no fewer states than `PENDING`."""
        return not self.ids and set(PENDING) <= set(self.states)

    def stored(self) -> dict[str, Any]:
        """The choice as it is stored with the run."""
        return asdict(self)

    @classmethod
    def read(cls, stored: dict[str, Any]) -> Self:
        lists = {name: tuple(stored[name]) for name in ("ids", "states")}
        return cls(**{**stored, **lists})


LEFT = ("without_body", "unreadable", "unsure", "changed", "unknown", "taken")
"""Counts of jobs, or tokens, that should have come back, and did not."""


@dataclass(slots=True)
class Sums:
    """What a run has done."""

    counts: Counter[str] = field(default_factory=Counter)
    """`looked` at; of these, `known` to Redis, `ended` meanwhile, `put` (of these, `schedules`, `tombstones`,
    `overdue`, `expired` (dead because their ttl is over), `buried` (dead because they are overdue)), `skipped` because
    they are overdue, `absent` at the time that was asked for, `over` (tokens that were revoked or have expired); and
    those of `LEFT`."""
    named: dict[str, list[str]] = field(default_factory=dict)
    """Ids by count, for the counts of `LEFT`, and `older`."""
    tokens: dict[str, str] | None = None
    """The names of the tokens that came back, by id; None if this run was not for tokens."""

    def name(self, why: str, job_id: str) -> None:
        """Count a job that the user should know about, and remember its id."""
        self.counts[why] += 1
        self.named.setdefault(why, []).append(job_id)

    @property
    def left(self) -> int:
        """How many should have come back, and did not."""
        return sum(self.counts[why] for why in LEFT)


class Progress(NamedTuple):
    """How far a run is."""

    sums: Sums
    total: int
    """How many jobs and schedules the run considers."""


Report = Callable[[Progress], None]


class NotBegun(Exception):
    """A run that cannot begin; the message says why, and what helps."""


class Stopped(Exception):
    """A run that could not go on, for the reason that the message gives. It may be repeated or resumed."""


PATIENCE_S = 60.0  # for a database, a Redis, or a journal that makes no progress
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
        """The place of the last event."""
        return self.ms, self.seq, self.n


JOB_COLUMNS = [tables.job.c[name] for name in JobRow._fields]


class Reading:
    """A journal, read for one source."""

    def __init__(self, engine: AsyncEngine, source: str, patience_s: float = PATIENCE_S) -> None:
        self._engine = engine
        self.source = source
        self.patience_s = patience_s

    async def rows(self, statement: Select[Any]) -> Sequence[Any]:
        """The rows of a query. Raises Stopped when the database is away for too long."""
        rows: Sequence[Any] = (await self.run(statement)).all()
        return rows

    async def run(self, *statements: Executable) -> Any:
        """Run statements, which must be safe to repeat, in a transaction of their own. Returns the result of the last
        one, which is fully read. Raises Stopped."""
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
