"""Which events and bodies a journal keeps, and since when (`jq_choice`, by shard); and which events do not count.

A shard without a row in `jq_choice` keeps everything. A question about events that are not kept is refused, or answered
with a note.

When Redis goes back to an earlier state, as in a failover, the events that it has forgotten do not count. `jq_gap` has
them as a gap of kind 2. If Redis was emptied or replaced by another one, there is also a gap of kind 3 with the same
epoch and places, because everything is walked again. In that case the earlier events did happen, and count: nothing
else has replaced them.
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
        """Returns True if this choice keeps something that `before` did not, and that a walk can read from the
        records."""
        return (self.events == "all" != before.events) or (self.bodies and not before.bodies)


class Change(NamedTuple):
    """The choice that applies to a shard from some time on."""

    shard: int
    since: int
    """us: events recorded after this time are kept this way."""
    choice: Choice


class Unkept(NamedTuple):
    """A period in which a shard does not keep all events."""

    shard: int
    since: int
    """us"""
    until: int | None
    """us; None if the period still lasts."""
    events: Kept

    @property
    def words(self) -> str:
        kept = "no events" if self.events == "none" else "only the events that begin or end a life, and deaths,"
        end = "on" if self.until is None else f"to {moment(self.until)} UTC"
        return f"the journal keeps {kept} from {moment(self.since)} UTC {end} (`journal run --events {self.events}`)"


def query(source: str) -> Select[Any]:
    """Selects the rows of a source, to be passed to `changes`."""
    row = choice.c
    return select(row.shard, row.since, row.events, row.bodies).where(row.source == source).order_by(row.since)


def changes(rows: Iterable[Any]) -> list[Change]:
    """The changes in the rows that `query` has selected, in the same order."""
    return [Change(row.shard, row.since, Choice(row.events, bool(row.bodies))) for row in rows]


def of_shard(known: Sequence[Change], shard: int) -> list[Change]:
    return [change for change in known if change.shard == shard]


def newest(known: Sequence[Change]) -> Choice:
    """What is kept now: the choice of the last change."""
    return known[-1].choice if known else Choice()


def held_at(known: Sequence[Change], at: int) -> Choice:
    """What was kept at a time (us), according to the changes of a shard."""
    return newest([change for change in known if change.since < at])


def unkept(known: Sequence[Change], since: int = 0, until: int | None = None) -> list[Unkept]:
    """The periods between `since` and `until` (us) in which not all events are kept, grouped by shard."""
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
    """The SQL condition that a row of `jq_gap` is from a Redis that went back without being emptied. `gap`: the name of
    the table in the query."""
    same = " AND ".join(f"other.{name} = {gap}.{name}" for name in _SAME)
    is_emptied = f"EXISTS (SELECT 1 FROM jq_gap other WHERE other.kind = {UNKNOWN} AND {same})"
    return f"({gap}.kind = {FORGOTTEN} AND NOT {is_emptied})"


def is_taken_back(event: str) -> str:
    """The SQL condition that a row of `jq_event` was recorded before Redis went back, and that Redis has forgotten it.
    `event`: the name of the table in the query."""
    return (
        f"EXISTS (SELECT 1 FROM jq_gap g WHERE g.kind = {FORGOTTEN} "
        f"AND g.source = {event}.source AND g.shard = {event}.shard AND {event}.branch < g.epoch "
        f"AND ({event}.ms > g.from_ms OR ({event}.ms = g.from_ms AND {event}.seq > g.from_seq)) "
        f"AND ({event}.ms < g.to_ms OR ({event}.ms = g.to_ms AND {event}.seq <= g.to_seq)) AND {has_gone_back('g')})"
    )
