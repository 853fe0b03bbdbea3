"""The contract of a store: what writes a journal into one kind of database. Members are in `stores/`, a file each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

Row = tuple[Any, ...]
"""The values of a table's columns (tables.py), in their order."""


class Position(NamedTuple):
    """How far a shard is drained: a row of `jq_position` without its key."""

    epoch: int
    ms: int
    seq: int
    entries: int
    stream: str
    since: int
    time: int


@dataclass(slots=True)
class Batch:
    """What one transaction writes for a shard."""

    source: str
    shard: int
    before: Position | None
    """The position that must still hold: no other reader has written meanwhile. None: there is none yet."""
    after: Position
    events: Sequence[Row] = ()
    """Of `jq_event`. With `may_repeat`, one whose place is taken by an event with the same checksum is there already,
    and passed over; one with another checksum gets the epoch of `after` as its branch, one of a walk the next lower
    branch. Without it, all are new."""
    jobs: Sequence[Row] = ()
    """Of `jq_job`, one a job. Written only where the place is newer than the row's. `options` None: as the row has
    it, if that is of the same life. `body` likewise, with `body_kept` 1 where a body must be somewhere. `life` 0: the
    job was set aside or has vanished, and nothing else is known: the rest of the row stays."""
    minutes: Sequence[Row] = ()
    """Of `jq_minute`, added to what is there. With `may_repeat` the store leaves out what is there already."""
    schedules: Sequence[Row] = ()
    """Of `jq_schedule`, one a schedule. Written only where the place is newer than the row's. `definition` None: only
    the times are told, of the schedule of that `revision`; with `revision` 0 only that it is gone."""
    gaps: Sequence[Row] = ()
    """Of `jq_gap`, but for its number."""
    refused: Sequence[Row] = ()
    """Of `jq_refused`, but for its number."""
    may_repeat: bool = False
    """Whether events may be there already: after Redis went back, and in walks. Else the usual, faster way."""


class Overtaken(Exception):
    """Another reader has moved the position: nothing of this batch was written."""


class ContentRefused(Exception):
    """The database does not take something in the batch; nothing of it was written; the rest it may take."""


class Away(Exception):
    """The database cannot be reached, or is not ready; nothing, or all, of the batch was written. Try again later."""


class Store(Protocol):
    """A connection to a journal, for one writer."""

    async def position(self, source: str, shard: int) -> Position | None:
        """How far a shard is drained; None: nothing was. Raises Away."""

    async def write(self, batch: Batch) -> None:
        """Write a batch in one transaction. Raises Overtaken, ContentRefused, Away."""

    async def close(self) -> None:
        """Close the connection."""
