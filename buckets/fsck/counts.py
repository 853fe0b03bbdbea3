"""The counts of topics as a scan of the pool gives them, and how counters in Redis must be changed to be the same."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from buckets.job import LIVE

_STATES = [state.word.encode() for state in LIVE]
# What balances: created + replaced = delayed + ready + reserved + dead + finished + deleted.
_TOTALS = (b"created", b"replaced", b"finished", b"deleted")
_NUMBER = re.compile(rb"0|-?[1-9][0-9]{0,17}")


@dataclass(frozen=True, slots=True)
class Change:
    """A field of a topic's counts (`c`) or histogram (`h`): what it holds (empty: it is not there), what it must."""

    family: str
    name: bytes
    seen: bytes
    wanted: bytes

    @property
    def error(self) -> bytes | int:
        """How wrong it is. That does not change when jobs move, unless it is no number at all."""
        return number(self.seen) - number(self.wanted) if _NUMBER.fullmatch(self.seen or b"0") else self.seen


def number(raw: bytes | None) -> int:
    """A counter's value; what is no number counts as none."""
    return int(raw) if raw is not None and _NUMBER.fullmatch(raw) else 0


@dataclass(slots=True)
class Counters:
    """What Redis holds of a topic."""

    counts: dict[bytes, bytes] = field(default_factory=dict)
    bins: dict[bytes, bytes] = field(default_factory=dict)


class Tally:
    """The jobs of a scan, counted by topic and state, and pending ones by the bin of their time."""

    def __init__(self) -> None:
        self._states: defaultdict[bytes, Counter[bytes]] = defaultdict(Counter)
        self._bins: defaultdict[bytes, Counter[bytes]] = defaultdict(Counter)

    def add(self, counted: Sequence[bytes | int]) -> None:
        """Take in a reply of audit.lua: {state bin topic, n, …}."""
        for name, n in zip(counted[::2], counted[1::2], strict=True):
            assert isinstance(name, bytes) and isinstance(n, int)
            state, bin_name, topic = name.split(b" ", 2)
            self._states[topic][state] += n
            if bin_name:
                self._bins[topic][bin_name] += n

    @property
    def topics(self) -> set[bytes]:
        return {topic for topic, states in self._states.items() if any(states[state] for state in _STATES)}

    def has_ready(self, topic: bytes) -> bool:
        return self._states[topic][b"ready"] > 0

    def changes(self, topic: bytes, counters: Counters) -> list[Change]:
        """What must change for the counters to be right; those of the counts all or none."""
        counts = self._counts(topic, counters.counts)
        bins = _bins(self._bins[topic], counters.bins)
        is_wrong = any(number(change.seen) != number(change.wanted) for change in counts)
        is_junk = not all(map(_NUMBER.fullmatch, counters.counts.values()))
        return (counts if is_wrong or is_junk else []) + bins

    def _counts(self, topic: bytes, seen: Mapping[bytes, bytes]) -> list[Change]:
        wanted = {state: self._states[topic][state] for state in _STATES}
        wanted |= _totals(sum(wanted.values()), seen)
        changes = [Change("c", name, seen.get(name, b""), b"%d" % n) for name, n in wanted.items()]
        others = seen.keys() - wanted.keys()
        return changes + [Change("c", name, seen[name], b"") for name in others if not _NUMBER.fullmatch(seen[name])]


def _totals(alive: int, seen: Mapping[bytes, bytes]) -> dict[bytes, int]:
    """Totals that balance with so many live jobs. Which of them is wrong nobody can say; we say it is `created`."""
    totals = {name: max(number(seen.get(name)), 0) for name in _TOTALS}
    created = alive + totals[b"finished"] + totals[b"deleted"] - totals[b"replaced"]
    totals[b"created"] = max(created, 0)
    totals[b"finished"] += max(-created, 0)
    return totals


def _bins(truth: Mapping[bytes, int], seen: Mapping[bytes, bytes]) -> list[Change]:
    wanted = {name: b"%d" % truth[name] if truth.get(name) else b"" for name in truth.keys() | seen.keys()}
    return [
        Change("h", name, seen.get(name, b""), value)
        for name, value in wanted.items()
        if seen.get(name) != (value or None)
    ]
