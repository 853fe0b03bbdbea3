"""Turns events of schedules into the rows of `jq_schedule` that a batch writes, one per schedule.

A row without a definition only changes the existing row: with a revision, it changes the times if the existing row has
the same revision; without a revision, it says that the schedule is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
from msgspec import Raw, Struct

from buckets.events.codec import Event
from buckets.layout import SCHEDULE
from buckets.schedules.record import Schedule
from jobqueue.journal import tables
from jobqueue.journal.store import Row

_COLUMNS = [column.name for column in tables.schedule.columns]
_DEFINITION, _REVISION = _COLUMNS.index("definition"), _COLUMNS.index("revision")


@dataclass(slots=True)
class _Told:
    """What a batch knows about a schedule."""

    schedule: Schedule | None
    """None if only its removal is known."""
    place: tuple[int, int, int]
    at: int
    gone: int | None = None


class ScheduleRows:
    """What a batch knows about the schedules of a shard. `bodies`: whether the bodies of their occurrences are kept."""

    def __init__(self, source: str, shard: int, *, bodies: bool) -> None:
        self._source, self._shard, self._bodies = source, shard, bodies
        self._told: dict[str, _Told] = {}

    def tell(self, event: Event, place: tuple[int, int, int]) -> None:
        """Add an event; events must be added in their order."""
        name, schedule = event.id.removeprefix(SCHEDULE), event.schedule
        held = self._told.get(name)
        if schedule is None:
            self._told[name] = _Told(held.schedule if held else None, place, event.at, event.at)
        elif schedule.definition or held is None or held.schedule is None:
            self._told[name] = _Told(schedule, place, event.at)
        elif held.schedule.revision == schedule.revision:
            whole = schedule._replace(definition=held.schedule.definition)
            self._told[name] = _Told(whole, place, event.at, held.gone)

    def rows(self) -> list[Row]:
        """The rows for what was added."""
        return [self._row(name, told) for name, told in self._told.items()]

    def _row(self, name: str, told: _Told) -> Row:
        schedule = told.schedule
        if schedule is None or (told.gone is not None and not schedule.definition):
            schedule = Schedule(name, 0, 0, 0, 0, 0, b"")
        topic, definition = _kept(schedule.definition, self._bodies)
        times = (schedule.revision, schedule.start, schedule.next, schedule.last)
        kept = (definition or None, int(self._bodies))
        return (self._source, name, self._shard, topic, *times, *kept, *told.place, told.at, told.gone)


class _Definition(Struct):
    topic: str


def topic_of(definition: bytes) -> str:
    """The topic that a definition names; empty if the definition cannot be read."""
    try:
        return msgspec.json.decode(definition, type=_Definition).topic
    except ValueError:
        return ""


def _kept(definition: bytes, bodies: bool) -> tuple[str, str]:
    """The topic of a definition, and the part of the definition that is kept."""
    topic = topic_of(definition)
    if topic and not bodies:
        fields = msgspec.json.decode(definition, type=dict[str, Raw])
        definition = msgspec.json.encode({name: value for name, value in fields.items() if name != "body"})
    # PostgreSQL accepts no NUL in text.
    return topic, definition.decode("utf-8", "replace").replace("\0", "\ufffd")


_PLACE = ("ms", "seq", "n")
_OLDER = "source = {} AND name = {} AND (ms, seq, n) < ({}, {}, {})"


class Change(NamedTuple):
    """An update of existing rows, with `{}` for each parameter, and the columns that the parameters come from."""

    statement: str
    columns: tuple[str, ...]

    def sql(self, parameter: Callable[[int], str]) -> str:
        """The statement. `parameter`: returns the placeholder of a parameter, by its number."""
        return self.statement.format(*map(parameter, range(1, len(self.columns) + 1)))

    def values(self, rows: Iterable[Row]) -> Iterator[Row]:
        """The parameters for each row."""
        return (tuple(row[_COLUMNS.index(name)] for name in self.columns) for row in rows)


MOVED = Change(
    "UPDATE jq_schedule SET start = {}, next = {}, last = {}, ms = {}, seq = {}, n = {}, at = {} "
    f"WHERE gone IS NULL AND revision = {{}} AND {_OLDER}",
    ("start", "next", "last", *_PLACE, "at", "revision", "source", "name", *_PLACE),
)
"""After an occurrence: changes a schedule only if it is live and has this revision."""
GONE = Change(
    f"UPDATE jq_schedule SET ms = {{}}, seq = {{}}, n = {{}}, at = {{}}, gone = {{}} WHERE {_OLDER}",
    (*_PLACE, "at", "gone", "source", "name", *_PLACE),
)


class Split(NamedTuple):
    """The rows of schedules in a batch, by how they are written. Each is written only if it is newer than the existing
    row."""

    told: list[Row]
    """Written as whole rows."""
    moved: list[Row]
    gone: list[Row]


def split(rows: Sequence[Row]) -> Split:
    told = [row for row in rows if row[_DEFINITION] is not None]
    rest = [row for row in rows if row[_DEFINITION] is None]
    return Split(told, [row for row in rest if row[_REVISION]], [row for row in rest if not row[_REVISION]])
