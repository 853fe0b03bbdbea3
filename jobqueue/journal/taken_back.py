"""Which events do not count: those of a course that Redis left when it went back, as in a failover, for another one.

`jq_gap` has what Redis has forgotten as kind 2. Where Redis was emptied, or another one took its place, a gap of kind 3
of the same epoch and places stands beside it, as all is walked again. What happened before that did happen, and counts:
nothing else came in its place.
"""

from __future__ import annotations

from jobqueue.journal.reading.verdict import FORGOTTEN, UNKNOWN

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
