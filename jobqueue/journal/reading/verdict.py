"""Compares a stream with the position of its shard: all is well, entries were lost, or Redis went back.

`entries` of a position counts the entries drained in its epoch, and those already reported as lost. So entries that
Redis has added beyond that number, and does not have now, were cut off before they could be read.
"""

from __future__ import annotations

from enum import Enum

from buckets.events.stream import START, Place, View
from jobqueue.journal.store import Position, Row


class Verdict(Enum):
    """A verdict on the stream of a shard."""

    WELL = "well"
    NO_STREAM = "there is none"
    FIRST = "it was never read"
    LOST = "entries were cut off before they were read"
    BACK = "it seems to have less than what was read"
    OTHER = "it is another stream"


LOST, FORGOTTEN, UNKNOWN = 1, 2, 3
"""Kinds of gaps: entries that never reached the journal; entries that Redis has forgotten; and no entries, but records
that a walk must read."""


def place_of(position: Position | None) -> Place:
    return Place(position.ms, position.seq) if position else START


def lost(position: Position, view: View, upto: int = 0) -> int:
    """How many entries were cut off unread; negative if Redis went back. `upto`: how many entries of the stream are not
    after the position."""
    return view.added - position.entries - (view.length - upto)


def judge(position: Position | None, view: View) -> Verdict:
    """Judge a view. It has no entries up to the position, unless it shows that Redis went back."""
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
    """us: the time until which there was nothing to drain, for a stream of which nothing is drained yet."""
    return (view.first.ms - 1) * 1000 if view.first else view.now_us


def first_position(view: View) -> Position:
    """The position before the first read of a stream. Entries that another journal has drained are not lost for this
    one."""
    entries = view.added - view.length if view.given and view.given > START else 0
    return Position(0, *START, entries, view.word, view.now_us, told_until(view))


def next_epoch(position: Position, view: View) -> Position:
    """The position from which to read a stream that went back, or that is a different one."""
    first = first_position(view)._replace(epoch=position.epoch + 1, since=position.since)
    return first if view.word != position.stream else first._replace(entries=view.added - view.length)


def gap_row(
    source: str, shard: int, epoch: int, kind: int, after: Place, upto: Place, entries: int, found_us: int
) -> Row:
    """A row of `jq_gap`."""
    return (source, shard, epoch, kind, *after, *upto, entries, found_us, None)


def before(place: Place | None, otherwise: Place) -> Place:
    """The last possible place before `place`, or `otherwise` if that is None."""
    if place is None:
        return otherwise
    return Place(place.ms, place.seq - 1) if place.seq else Place(place.ms - 1, (1 << 63) - 1)
