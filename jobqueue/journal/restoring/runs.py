"""The runs of restore, as the journal keeps them: `jq_restore`."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Any, NamedTuple, Self

from sqlalchemy import insert, select, update

from jobqueue.journal import tables
from jobqueue.journal.restoring.choice import Choice, NotBegun, Sums
from jobqueue.journal.restoring.listing import Cursor
from jobqueue.journal.restoring.reading import Reading

_RUN = tables.restore.c


class Found(NamedTuple):
    """The last run, as it was left."""

    choice: Choice
    cursor: Cursor | None
    sums: Sums


class Run:
    """A run that is kept in the journal."""

    def __init__(self, reading: Reading, number: int) -> None:
        self._reading = reading
        self.number = number

    @property
    def actor(self) -> str:
        """Who makes its moves, as their events say."""
        return f"restore:{self.number}"

    @classmethod
    async def begin(cls, reading: Reading, choice: Choice, kind: str = "restore") -> Self:
        options = json.dumps({"kind": kind, **choice.stored()})
        begun = {"source": reading.source, "begun": time.time_ns() // 1000, "options": options}
        result = await reading.run(insert(tables.restore).values(**begun, cursor="null", sums="{}"))
        return cls(reading, int(result.inserted_primary_key[0]))

    @classmethod
    async def last(cls, reading: Reading) -> tuple[Self, Found]:
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
        return cls(reading, number), Found(Choice.read(kept), json.loads(cursor), Sums(Counter(json.loads(sums))))

    async def note(self, cursor: Cursor | None, sums: Sums) -> None:
        """Keep how far it is."""
        await self._write(cursor=json.dumps(cursor), sums=json.dumps(sums.counts))

    async def end(self, sums: Sums) -> None:
        """Keep that it has ended."""
        await self._write(ended=time.time_ns() // 1000, sums=json.dumps(sums.counts))

    async def _write(self, **values: Any) -> None:
        await self._reading.run(update(tables.restore).where(_RUN.number == self.number).values(**values))
