"""Which events and bodies a journal keeps, and since when: `jq_choice`, by shard; and which events do not count.

Where it has no row, all are kept. A question about events that are not kept is refused, or answered with a note.

Events of a course that Redis left when it went back, as in a failover, do not count. `jq_gap` has what Redis has
forgotten as kind 2. Where Redis was emptied, or another one took its place, a gap of kind 3 of the same epoch and
places is beside it, as all is walked again. What happened before that did happen, and counts: nothing else came in its
place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Select, select

from jobqueue.journal.explaining.words import moment
from jobqueue.journal.reading.verdict import FORGOTTEN, UNKNOWN
from jobqueue.journal.rows import Kept
from jobqueue.journal.tables import choice


class Choice(NamedTuple):
    """What is kept."""

    events: Kept = "all"
    bodies: bool = True

    def widens(self, before: Choice) -> bool:
        """Whether the records have something that was not kept before."""
        return (self.events == "all" != before.events) or (self.bodies and not before.bodies)


class Change(NamedTuple):
    """From a time on, another choice holds in a shard."""

    shard: int
    since: int
    """us: what was told later is kept so."""
    choice: Choice


class Unkept(NamedTuple):
    """A time of a shard in which not all events are kept."""

    shard: int
    since: int
    """us"""
    until: int | None
    """us; None: it lasts."""
    events: Kept

    @property
    def words(self) -> str:
        kept = "no events" if self.events == "none" else "only the events that begin or end a life, and deaths,"
        end = "on" if self.until is None else f"to {moment(self.until)} UTC"
        return f"the journal keeps {kept} from {moment(self.since)} UTC {end} (`journal run --events {self.events}`)"


def query(source: str) -> Select[Any]:
    """Selects the rows of a source, for `changes`."""
    row = choice.c
    return select(row.shard, row.since, row.events, row.bodies).where(row.source == source).order_by(row.since)


def changes(rows: Iterable[Any]) -> list[Change]:
    """Rows that `query` has selected, in their order."""
    return [Change(row.shard, row.since, Choice(row.events, bool(row.bodies))) for row in rows]


def of_shard(known: Sequence[Change], shard: int) -> list[Change]:
    return [change for change in known if change.shard == shard]


def newest(known: Sequence[Change]) -> Choice:
    """What is kept now, by the last of some changes."""
    return known[-1].choice if known else Choice()


def held_at(known: Sequence[Change], at: int) -> Choice:
    """What was kept of a time (us), by the changes of a shard."""
    return newest([change for change in known if change.since < at])


def unkept(known: Sequence[Change], since: int = 0, until: int | None = None) -> list[Unkept]:
    """The times between two (us) in which not all events are kept, those of each shard together."""
    found: list[Unkept] = []
    for shard in sorted({change.shard for change in known}):
        found += _of_one(of_shard(known, shard))
    return [each for each in found if (until is None or each.since < until) and (each.until or since + 1) > since]


def _of_one(known: Sequence[Change]) -> list[Unkept]:
    ends = [*(change.since for change in known[1:]), None]
    found: list[Unkept] = []
    for (shard, since, kept), end in zip(known, ends, strict=True):
        if found and found[-1].until == since and found[-1].events == kept.events:
            found[-1] = found[-1]._replace(until=end)
        elif kept.events != "all":
            found.append(Unkept(shard, since, end, kept.events))
    return found


_SAME = ("source", "shard", "epoch", "from_ms", "from_seq", "to_ms", "to_seq")


def has_gone_back(gap: str) -> str:
    """The condition that a row of `jq_gap` tells of a Redis that went back, and was not emptied. `gap`: its name."""
    same = " AND ".join(f"other.{name} = {gap}.{name}" for name in _SAME)
    is_emptied = f"EXISTS (SELECT 1 FROM jq_gap other WHERE other.kind = {UNKNOWN} AND {same})"
    return f"({gap}.kind = {FORGOTTEN} AND NOT {is_emptied})"


def is_taken_back(event: str) -> str:
    """The condition that a row of `jq_event` is of a course that Redis has left, and not told by what came after that.
    `event`: its name."""
    return (
        f"EXISTS (SELECT 1 FROM jq_gap g WHERE g.kind = {FORGOTTEN} "
        f"AND g.source = {event}.source AND g.shard = {event}.shard AND {event}.branch < g.epoch "
        f"AND ({event}.ms > g.from_ms OR ({event}.ms = g.from_ms AND {event}.seq > g.from_seq)) "
        f"AND ({event}.ms < g.to_ms OR ({event}.ms = g.to_ms AND {event}.seq <= g.to_seq)) AND {has_gone_back('g')})"
    )
