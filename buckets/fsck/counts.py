"""The check of counts: the counters of topics against a tally of the jobs in the pool.

Counters change while the jobs are scanned. So they are compared only where they were the same before the scan and after
it, and an error counts only when a second pass finds the same one.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from buckets.errors import JobQueueError
from buckets.fsck.findings import shown
from buckets.fsck.keys import FoundKeys
from buckets.fsck.shard import CheckedShard
from buckets.job import LIVE
from buckets.pages import chunks

_FIELDS = 100  # counts per script

_STATES = [state.word.encode() for state in LIVE]
# What balances: created + replaced = delayed + ready + reserved + dead + finished + deleted.
_TOTALS = (b"created", b"replaced", b"finished", b"deleted")
_NUMBER = re.compile(rb"0|-?[1-9][0-9]{0,17}")


@dataclass(frozen=True, slots=True)
class Change:
    """A field of a topic's counts (`c`) or histogram (`h`): the value that it holds (empty: none) and the right one."""

    family: str
    name: bytes
    seen: bytes
    wanted: bytes

    @property
    def error(self) -> bytes | int:
        """How far off it is, which does not change when jobs move; its value where that is not a number."""
        return number(self.seen) - number(self.wanted) if _NUMBER.fullmatch(self.seen or b"0") else self.seen


def number(raw: bytes | None) -> int:
    """A counter's value; 0 for what is not a number."""
    return int(raw) if raw is not None and _NUMBER.fullmatch(raw) else 0


@dataclass(slots=True)
class Counters:
    """What Redis holds about a topic."""

    counts: dict[bytes, bytes] = field(default_factory=dict)
    bins: dict[bytes, bytes] = field(default_factory=dict)


class Tally:
    """The jobs of a scan, counted by topic and state, and pending ones by the bin of their time."""

    def __init__(self) -> None:
        self._states: defaultdict[bytes, Counter[bytes]] = defaultdict(Counter)
        self._bins: defaultdict[bytes, Counter[bytes]] = defaultdict(Counter)

    def add(self, counted: Sequence[bytes | int]) -> None:
        """Add a reply of audit.lua: {state bin topic, n, …}."""
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
        """The changes that make the counters right; of the counts all fields or none."""
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


class CountCheck:
    """The passes over the counts of a shard's topics."""

    def __init__(self, shard: CheckedShard) -> None:
        self._shard = shard
        self.errors: dict[bytes, list[tuple[str, bytes, bytes | int]]] = {}
        """By topic, as the last pass saw them and as far as they are not settled."""

    async def read(self, topics: Iterable[bytes]) -> dict[bytes, Counters]:
        """The counters of these topics as they are now."""
        return {topic: await self._read(topic) for topic in topics}

    async def _read(self, topic: bytes) -> Counters:
        """What Redis holds about a topic; nothing where another program's key is in the way."""
        try:
            counts = await self._shard.pages.fields(self._shard.key("COUNTS", topic))
            return Counters(counts, await self._shard.pages.fields(self._shard.key("DUE", topic)))
        except JobQueueError as error:
            if "WRONGTYPE" not in error.message:
                raise
            return Counters()

    async def check(self, found: FoundKeys, before: Mapping[bytes, Counters], tally: Tally) -> set[bytes]:
        """Compare the counts of all topics with a tally of their jobs, and put them right. `before`: the counters as
        they were when the tally began. Returns the topics that are still in doubt."""
        topics = before.keys() | tally.topics
        return {topic for topic in topics if await self._is_in_doubt(topic, found, before, tally)}

    async def _is_in_doubt(
        self, topic: bytes, found: FoundKeys, before: Mapping[bytes, Counters], tally: Tally
    ) -> bool:
        if {b"c:" + topic, b"h:" + topic} & found.spoilt:
            return False
        has_lists = await self._has_lists(topic)  # before the counts: a list that came since changes them
        after = await self._read(topic)
        if after != before.get(topic, Counters()):
            return True
        changes = tally.changes(topic, after)
        if has_lists and not tally.has_ready(topic) and not any(change.name == b"ready" for change in changes):
            changes.append(Change("c", b"ready", after.counts.get(b"ready", b""), after.counts.get(b"ready", b"")))
        errors = sorted(((each.family, each.name, each.error) for each in changes), key=repr)
        if errors != self.errors.get(topic, []):
            self.errors[topic] = errors
            return True
        await self._settle(topic, after, changes)
        return False

    async def _has_lists(self, topic: bytes) -> bool:
        names = [self._shard.key("READY", b"%d:%s" % (priority, topic)) for priority in range(10)]
        return bool(await self._shard.pool.redis.read("EXISTS", *names))

    async def _settle(self, topic: bytes, counters: Counters, changes: list[Change]) -> None:
        unknown = counters.counts and await self._is_unknown(topic)
        if changes:
            only_lists = len(changes) == 1 and changes[0].name == b"ready" and changes[0].seen == changes[0].wanted
            kind = "idle_list" if only_lists else "miscounted"
            settled = self._shard.repair and await self._recount(topic, changes)
            self._shard.find(kind, shown(topic), repaired=settled)
            if settled:
                del self.errors[topic]
        if unknown:
            settled = self._shard.repair and await self._recount(topic, [])
            self._shard.find("unknown_topic", shown(topic), repaired=settled)

    async def _is_unknown(self, topic: bytes) -> bool:
        read = self._shard.pool.redis.read
        try:
            if await read("ZSCORE", self._shard.keys.topics, topic) is not None:
                return False
        except JobQueueError:
            pass  # another program's key is where the list of topics should be
        return bool(await read("EXISTS", self._shard.key("COUNTS", topic)))  # else it was just forgotten

    async def _recount(self, topic: bytes, changes: list[Change]) -> bool:
        """Write counts, except those that changed meanwhile; whether all were written."""
        parts = [
            (family, some)
            for family in "ch"
            for some in chunks([change for change in changes if change.family == family], _FIELDS)
        ]
        done = []
        for family, some in parts or [("c", [])]:
            fields = [text for each in some for text in (each.name, each.seen, each.wanted)]
            done.append(await self._shard.call("recount", fields, family=family, topic=topic))
        return all(done)
