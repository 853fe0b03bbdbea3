"""What a stream says about the position of its shard: whether all is well, entries were lost, or Redis went back.

`entries` of a position counts those drained in its epoch, and each one that was told as lost. So whatever Redis has
added beyond them, and does not have now, was cut off before it could be read.
"""

from __future__ import annotations

from enum import Enum

from buckets.events.stream import START, Place, View
from jobqueue.journal.store import Position, Row


class Verdict(Enum):
    """On the stream of a shard."""

    WELL = "well"
    NO_STREAM = "there is none"
    FIRST = "it was never read"
    LOST = "entries were cut off before they were read"
    BACK = "it seems to have less than what was read"
    OTHER = "it is another stream"


LOST, FORGOTTEN, UNKNOWN = 1, 2, 3
"""Kinds of gaps: entries that never came; entries that Redis has forgotten; what was before, and is to be walked."""


def place_of(position: Position | None) -> Place:
    return Place(position.ms, position.seq) if position else START


def lost(position: Position, view: View, upto: int = 0) -> int:
    """How many entries were cut off unread; below 0: Redis went back. `upto`: how many of the stream are not behind the
    position."""
    return view.added - position.entries - (view.length - upto)


def judge(position: Position | None, view: View) -> Verdict:
    """Judge a view that has no entries up to the position, unless it says that Redis went back."""
    if view.length < 0 or not view.word or view.given is None:
        return Verdict.NO_STREAM
    if position is None:
        return Verdict.FIRST
    if view.word != position.stream:
        return Verdict.OTHER
    place = place_of(position)
    if view.last < place or view.given < place:
        return Verdict.BACK
    missing = lost(position, view)
    return Verdict.WELL if not missing else Verdict.LOST if missing > 0 else Verdict.BACK


def told_until(view: View) -> int:
    """us: until when all that was told has been drained, as nothing of the stream is yet."""
    return (view.first.ms - 1) * 1000 if view.first else view.now_us


def first_position(view: View) -> Position:
    """The position before the first read of a stream. What another journal has had is no loss of this one."""
    entries = view.added - view.length if view.given and view.given > START else 0
    return Position(0, *START, entries, view.word, view.now_us, told_until(view))


def next_epoch(position: Position, view: View) -> Position:
    """The position from which a stream is read that went back, or that is another one."""
    first = first_position(view)._replace(epoch=position.epoch + 1, since=position.since)
    return first if view.word != position.stream else first._replace(entries=view.added - view.length)


def gap_row(
    source: str, shard: int, epoch: int, kind: int, after: Place, upto: Place, entries: int, found_us: int
) -> Row:
    """A row of `jq_gap`."""
    return (source, shard, epoch, kind, *after, *upto, entries, found_us, None)


def before(place: Place | None, otherwise: Place) -> Place:
    """The last place that there may be before one."""
    if place is None:
        return otherwise
    return Place(place.ms, place.seq - 1) if place.seq else Place(place.ms - 1, (1 << 63) - 1)
