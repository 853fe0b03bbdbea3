"""The sums by minute of events: rows of `jq_minute` from rows of `jq_event`."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from buckets.job import Verb
from jobqueue.journal.store import Row
from jobqueue.journal.tables import event
from jobqueue.metrics.process import LATENESS_S

_COLUMNS = [column.name for column in event.columns]
_SOURCE, _TOPIC, _VERB, _AFTER, _AT, _DUE, _DELIVERIES = (
    _COLUMNS.index(name) for name in ("source", "topic", "verb", "state_after", "at", "due", "deliveries")
)
_KEY = 5  # columns of the primary key
_MOST = 3  # the place of `late_most` among the sums
_NO_SUMS = [0, 0, 0.0, 0.0, *[0] * (len(LATENESS_S) + 1)]
_DELIVERED = (Verb.POP, Verb.TAKE)
_NOT_COUNTED = (Verb.WALK, Verb.VANISHED, Verb.SCHEDULE, Verb.OCCUR, Verb.UNSCHEDULE)
_MINUTE_US = 60_000_000


def minutes_of(events: Iterable[Row]) -> list[Row]:
    """Sum events up. The rows are sorted by their keys, so that writers of several shards take them in one order."""
    sums: dict[tuple[str, int, str, int, int], list[float]] = {}
    for row in events:
        verb = row[_VERB]
        key = (row[_TOPIC], verb, row[_AFTER], row[_AT] // _MINUTE_US, row[_SOURCE])
        held = sums.get(key)
        if held is None:
            if verb in _NOT_COUNTED:
                continue
            held = sums[key] = _NO_SUMS.copy()
        held[0] += 1
        if row[_DELIVERIES] == 1 and verb in _DELIVERED:
            _add_first(held, max(0, row[_AT] - row[_DUE] * 1000) / 1e6)
    rows = ((minute, source, topic, verb, after, *held) for (topic, verb, after, minute, source), held in sums.items())
    return sorted((_rounded(row) for row in rows), key=lambda row: row[:_KEY])


def _add_first(sums: list[float], late_s: float) -> None:
    """Add a first delivery."""
    sums[1] += 1
    sums[2] += late_s
    sums[_MOST] = max(sums[_MOST], late_s)
    sums[_MOST + 1 + bisect_left(LATENESS_S, late_s)] += 1


def _rounded(row: Row) -> Row:
    """A sum of seconds is one of whole microseconds."""
    return (*row[: _KEY + 2], round(row[_KEY + 2], 6), *row[_KEY + 3 :])


def less(minutes: Sequence[Row], counted: Iterable[Row]) -> list[Row]:
    """Sums without those events, which were counted before. The largest lateness stays: it was counted, too."""
    left = {row[:_KEY]: row for row in minutes}
    for row in minutes_of(counted):
        if (held := left.get(row[:_KEY])) is not None:
            sums = [
                one if place == _MOST else one - other
                for place, (one, other) in enumerate(zip(held[_KEY:], row[_KEY:], strict=True))
            ]
            left[row[:_KEY]] = _rounded((*row[:_KEY], *sums))
    return [row for row in left.values() if row[_KEY]]
