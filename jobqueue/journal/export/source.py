"""What of one source there is to export."""

from __future__ import annotations

from collections.abc import Collection
from datetime import date
from typing import Any

from sqlalchemy import Select, func, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from jobqueue.journal import tables
from jobqueue.journal.export.folder import Place
from jobqueue.journal.export.forms import Gap, forms
from jobqueue.journal.partitions import DAY_MS, day_of
from jobqueue.journal.taken_back import has_gone_back
from jobqueue.journal.url import Refused

_event, _position, _gap = tables.event.c, tables.position.c, tables.gap.c


class Source:
    """A source as the journal has it now."""

    def __init__(self, connection: AsyncConnection, name: str, places: dict[int, Place], time: int) -> None:
        self.connection, self.name, self._time = connection, name, time
        self.places = places
        """The last entry of each shard that is in the journal."""
        self.forms = forms([])

    @classmethod
    async def of(cls, connection: AsyncConnection, name: str | None) -> Source:
        """The source of that name; None: the only one. Raises Refused."""
        rows = (await connection.execute(select(tables.position))).all()
        names = sorted({row.source for row in rows})
        if not names:
            raise Refused("the journal is empty; `jobqueue journal run` fills it")
        if name not in names and (name is not None or len(names) > 1):
            what = "its source must be named" if name is None else f"it has no source {name}"
            raise Refused(f"the journal has {', '.join(names)}: {what}")
        own = [row for row in rows if row.source == (name or names[0])]
        places = {row.shard: Place(row.ms, row.seq) for row in own}
        made = cls(connection, name or names[0], places, min(row.time for row in own))
        made.forms = forms(await made._taken_back())
        return made

    async def _taken_back(self) -> list[Gap]:
        which = text(has_gone_back(tables.gap.name)), _gap.source == self.name
        query = select(*(_gap[name] for name in Gap._fields)).where(*which)
        return [Gap(*row) for row in await self.connection.execute(query)]

    def is_drained(self, day: date, beyond_ms: int) -> bool:
        """Whether the journal has what was told in a day, and for so long after it."""
        return self._time >= (_begin(day) + DAY_MS + beyond_ms) * 1000

    @property
    def last_day(self) -> date:
        return day_of(max(self.places.values()).ms)

    async def first_day(self) -> date | None:
        """The day of the first event."""
        query = select(_event.ms).where(_event.source == self.name, _event.branch >= 0)
        found = await self.connection.scalar(query.order_by(_event.ms).limit(1))
        return None if found is None else day_of(found)

    def rows(self, kind: str, day: date, from_ms: int = 0, shards: Collection[int] = ()) -> Select[Any]:
        """The query of a day's events or deliveries, in the order of their entries."""
        form = self.forms[kind]
        of = form.source.c
        query = self._of_day(select(*form.columns), kind, day).where(of.ms >= from_ms)
        query = query.where(of.shard.in_(shards)) if shards else query
        return query.order_by(of.ms, of.source, of.shard, of.seq, of.n)

    async def counts(self, day: date) -> dict[int, int]:
        """The number of a day's events, by shard."""
        query = self._of_day(select(_event.shard, func.count()), "events", day).group_by(_event.shard)
        return {row[0]: row[1] for row in await self.connection.execute(query)}

    def jobs(self, shards: Collection[int]) -> Select[Any]:
        """The query of the jobs of some shards."""
        form = self.forms["jobs"]
        return select(*form.columns).where(form.source.c.source == self.name, form.source.c.shard.in_(shards))

    def _of_day(self, query: Select[Any], kind: str, day: date) -> Select[Any]:
        of, begin = self.forms[kind].source.c, _begin(day)
        query = query.where(of.ms >= begin, of.ms < begin + DAY_MS, of.source == self.name)
        return query.where(of.branch >= 0) if kind == "events" else query  # walks are no moves


def _begin(day: date) -> int:
    """When a day begins, in ms since the epoch."""
    return (day - date(1970, 1, 1)).days * DAY_MS
