"""The runs of restore, as the journal keeps them: `jq_restore`, and `jq_left` for the jobs that they left."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, NamedTuple, Self

from sqlalchemy import Executable, insert, select, update

from buckets.pages import chunks
from buckets.shards import Shards
from jobqueue.journal import tables
from jobqueue.journal.restoring.choice import Choice, NotBegun, Sums
from jobqueue.journal.restoring.listing import Cursor
from jobqueue.journal.restoring.reading import Reading

_RUN, _LEFT = tables.restore.c, tables.left.c
_ROWS = 1_000  # of an insert: it has 3 parameters a row


class Found(NamedTuple):
    """The last run, as it was left."""

    choice: Choice
    cursor: Cursor | None
    sums: Sums


class Run:
    """A run that is kept in the journal. Its times are those of Redis, as the times of what it lost are."""

    def __init__(self, reading: Reading, shards: Shards, number: int) -> None:
        self._reading, self._shards = reading, shards
        self._noted: Counter[str] = Counter()  # ids that are kept, by count
        self.number = number

    @property
    def actor(self) -> str:
        """Who makes its moves, as their events say."""
        return f"restore:{self.number}"

    @classmethod
    async def begin(cls, reading: Reading, shards: Shards, choice: Choice, kind: str = "restore") -> Self:
        """Keep that a run begins. Raises Stopped, Unavailable."""
        options = json.dumps({"kind": kind, **choice.stored()})
        begun = {"source": reading.source, "begun": await shards.now_us(), "options": options}
        result = await reading.run(insert(tables.restore).values(**begun, cursor="null", sums="{}"))
        return cls(reading, shards, int(result.inserted_primary_key[0]))

    @classmethod
    async def last(cls, reading: Reading, shards: Shards) -> tuple[Self, Found]:
        """The last run of the source. Raises NotBegun where there is none to go on with."""
        newest = (
            select(_RUN.number, _RUN.ended, _RUN.options, _RUN.cursor, _RUN.sums)
            .where(reading.of_source(tables.restore))
            .order_by(_RUN.number.desc())
            .limit(1)
        )
        rows = await reading.rows(newest)
        if not rows or rows[0].ended is not None:
            raise NotBegun("the last run has ended: there is nothing to resume" if rows else "there was no run yet")
        number, _, options, cursor, sums = rows[0]
        kept: dict[str, Any] = json.loads(options)
        if kept.pop("kind") != "restore":
            raise NotBegun("the last run cannot be resumed; repeat it")
        run = cls(reading, shards, number)
        named = await run._named()
        return run, Found(Choice.read(kept), json.loads(cursor), Sums(Counter(json.loads(sums)), named))

    async def _named(self) -> dict[str, list[str]]:
        """The ids that are kept with it."""
        of_it = select(_LEFT.why, _LEFT.id).where(_LEFT.run == self.number).order_by(_LEFT.number)
        named: dict[str, list[str]] = {}
        for why, job_id in await self._reading.rows(of_it):
            named.setdefault(why, []).append(job_id)
        self._noted = Counter({why: len(ids) for why, ids in named.items()})
        return named

    async def note(self, cursor: Cursor | None, sums: Sums) -> None:
        """Keep how far it is."""
        await self._write(sums, cursor=json.dumps(cursor))

    async def end(self, sums: Sums) -> None:
        """Keep that it has ended. Raises Stopped, Unavailable."""
        await self._write(sums, ended=await self._shards.now_us())

    async def _write(self, sums: Sums, **values: Any) -> None:
        counts = json.dumps(sums.counts)
        statements: list[Executable] = [
            update(tables.restore).where(_RUN.number == self.number).values(**values, sums=counts)
        ]
        fresh = [(why, each) for why, ids in sums.named.items() for each in ids[self._noted[why] :]]
        for some in chunks(fresh, _ROWS):
            rows = [{"run": self.number, "why": why, "id": job_id} for why, job_id in some]
            statements.append(insert(tables.left).values(rows))
        await self._reading.run(*statements)
        self._noted = Counter({why: len(ids) for why, ids in sums.named.items()})
