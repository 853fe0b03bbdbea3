"""The contract of a store, which writes a journal into one kind of database. The stores are in `stores/`, one file
each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

Row = tuple[Any, ...]
"""The values of a table's columns (tables.py), in order."""


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
    """The position that the database must still have, because no other reader may have written meanwhile. None if there
    must be no position yet."""
    after: Position
    events: Sequence[Row] = ()
    """Rows of `jq_event`. With `may_repeat`, an event is skipped if its place has an event with the same checksum
    already. If the checksums differ, the event gets the epoch of `after` as its branch, or the next lower branch if it
    is from a walk. Without `may_repeat`, all events are new."""
    jobs: Sequence[Row] = ()
    """Rows of `jq_job`, one per job. A row is written only if its place is newer than the existing row's. If `options`
    is None, the options of the existing row stay, if it is of the same life. The same holds for the body if `body` is
    None and `body_kept` is 1, which means that the job must have a body. With `life` 0, the job was set aside or has
    vanished: nothing else is known, so the rest of the row stays."""
    minutes: Sequence[Row] = ()
    """Rows of `jq_minute`, added to the existing sums. With `may_repeat`, the store leaves out the events that it
    already has."""
    schedules: Sequence[Row] = ()
    """Rows of `jq_schedule`, one per schedule. A row is written only if its place is newer than the existing row's. If
    `definition` is None, only the times change, and only if the schedule has the same `revision`; with `revision` 0,
    the schedule is only marked as gone."""
    gaps: Sequence[Row] = ()
    """Rows of `jq_gap`, without `number`."""
    refused: Sequence[Row] = ()
    """Rows of `jq_refused`, without `number`."""
    may_repeat: bool = False
    """True if the database may already have some of the events: after Redis went back, and in walks. False is the usual
    case, and faster."""


class Overtaken(Exception):
    """Another reader has moved the position: nothing of this batch was written."""


class ContentRefused(Exception):
    """The database refuses something in the batch. Nothing of the batch was written, but the rest may be accepted
    without it."""


class Away(Exception):
    """The database cannot be reached, or is not ready. Either nothing or all of the batch was written. Try again
    later."""


class Store(Protocol):
    """A connection to a journal, for one writer."""

    async def position(self, source: str, shard: int) -> Position | None:
        """How far a shard is drained, or None if it never was. Raises Away."""

    async def write(self, batch: Batch) -> None:
        """Write a batch in one transaction. Raises Overtaken, ContentRefused, Away."""

    async def close(self) -> None:
        """Close the connection."""
