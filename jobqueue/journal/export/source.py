"""What of one source there is to export."""

from __future__ import annotations

from collections.abc import Collection
from datetime import date
from typing import Any

from sqlalchemy import Select, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from jobqueue.journal import tables
from jobqueue.journal.export.folder import Place
from jobqueue.journal.export.forms import EVENT_FORM, JOB_FORM
from jobqueue.journal.partitions import DAY_MS, day_of
from jobqueue.journal.url import Refused

_SETTLED_US = 60_000_000
"""For how long a day is open behind its end: clocks of two Redis differ, and one takes over from another."""
_event, _job, _position = tables.event.c, tables.job.c, tables.position.c


class Source:
    """A source as the journal has it now."""

    def __init__(self, name: str, connection: AsyncConnection, places: dict[int, Place], time: int) -> None:
        self.name, self.connection = name, connection
        self.places = places
        """The last entry of each shard that is in the journal."""
        self._time = time

    @classmethod
    async def of(cls, connection: AsyncConnection, name: str | None) -> Source:
        """The source of that name; None: the only one. Raises Refused."""
        rows = (await connection.execute(select(tables.position))).all()
        names = sorted({row.source for row in rows})
        there = f"it has {', '.join(names)}" if names else "it has none yet"
        if name is None and len(names) != 1:
            raise Refused(f"the source to export must be named: {there}" if names else "nothing was journaled yet")
        name = name or names[0]
        if name not in names:
            raise Refused(f"the journal has no source {name}; {there}")
        own = [row for row in rows if row.source == name]
        return cls(name, connection, {row.shard: Place(row.ms, row.seq) for row in own}, min(row.time for row in own))

    def is_settled(self, day: date) -> bool:
        """Whether all of a day is in the journal."""
        return self._time >= _begin(day) * 1000 + DAY_MS * 1000 + _SETTLED_US

    @property
    def last_day(self) -> date:
        return day_of(max(self.places.values()).ms)

    async def first_day(self) -> date | None:
        """The day of the first event."""
        query = select(_event.ms).where(_event.source == self.name, _event.branch >= 0)
        found = await self.connection.scalar(query.order_by(_event.ms).limit(1))
        return None if found is None else day_of(found)

    def events(self, day: date, from_ms: int = 0, shards: Collection[int] = ()) -> Select[Any]:
        """The query of a day's events, in the order of their entries; not of walks, which are no moves."""
        query = self._of_day(select(*EVENT_FORM.columns), day).where(_event.ms >= from_ms)
        query = query.where(_event.shard.in_(shards)) if shards else query
        return query.order_by(*tables.event.primary_key)

    async def counts(self, day: date) -> dict[int, int]:
        """The number of a day's events, by shard."""
        query = self._of_day(select(_event.shard, func.count()), day).group_by(_event.shard)
        return {row[0]: row[1] for row in await self.connection.execute(query)}

    def jobs(self, shards: Collection[int]) -> Select[Any]:
        """The query of the jobs of some shards."""
        return select(*JOB_FORM.columns).where(_job.source == self.name, _job.shard.in_(shards))

    def _of_day(self, query: Select[Any], day: date) -> Select[Any]:
        begin = _begin(day)
        between = (_event.ms >= begin, _event.ms < begin + DAY_MS)
        return query.where(*between, _event.source == self.name, _event.branch >= 0)


def _begin(day: date) -> int:
    """When a day begins, in ms since the epoch."""
    return (day - date(1970, 1, 1)).days * DAY_MS
