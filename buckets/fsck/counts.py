"""The checks of jobs and counts.

Counts are checked by comparing the counters of topics with a tally of the jobs in the pool. Counters change while the
jobs are scanned. So they are compared only if they were the same before and after the scan, and an error counts only if
a second pass finds the same error.

Jobs are checked one by one: each record by itself, against its bucket and its ready list; and each entry against its
record. If a ready job's entry was not in its list, the job may have become ready after the list was read. So the entry
counts as missing only if a second pass, which begins later, does not find it either. (The time at which the job became
ready is not enough, because clocks go back.)
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from buckets.errors import JobQueueError, NoRoom
from buckets.fsck.shard import PAGE, CheckedShard, FoundKeys, shown
from buckets.job import LIVE, Verb
from buckets.keys import FAMILIES, shard_of
from buckets.pages import chunks
from buckets.schedules.moving import are_schedules
from buckets.scripts import Value

_FIELDS = 100  # counts per script

_STATES = [*(state.word.encode() for state in LIVE), b"blocked"]
# The totals balance: created + replaced = delayed + ready + blocked + reserved + dead + finished + deleted.
_TOTALS = (b"created", b"replaced", b"finished", b"deleted")
_NUMBER = re.compile(rb"0|-?[1-9][0-9]{0,17}")


@dataclass(frozen=True, slots=True)
class Change:
    """A field of a topic's counts (`c`) or histogram (`h`): the value seen (empty for none) and the right value."""

    family: str
    name: bytes
    seen: bytes
    wanted: bytes

    @property
    def error(self) -> bytes | int:
        """How far the value is off, which does not change when jobs move; or the value itself if it is not a number."""
        return number(self.seen) - number(self.wanted) if _NUMBER.fullmatch(self.seen or b"0") else self.seen


def number(raw: bytes | None) -> int:
    """A counter's value, or 0 if it is not a number."""
    return int(raw) if raw is not None and _NUMBER.fullmatch(raw) else 0


@dataclass(slots=True)
class Counters:
    """The counts and the histogram of a topic in Redis."""

    counts: dict[bytes, bytes] = field(default_factory=dict)
    bins: dict[bytes, bytes] = field(default_factory=dict)


class Tally:
    """The jobs of a scan, counted by topic and state, and pending jobs also by the bin of their time."""

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
        """The changes that correct the counters; for the counts, either all fields or none."""
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
    """Totals that balance with the number of live jobs. Which total is wrong cannot be known, so `created` is
    changed."""
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
        """By topic, the errors that the last pass saw and that are not settled."""

    async def read(self, topics: Iterable[bytes]) -> dict[bytes, Counters]:
        """The counters of these topics as they are now."""
        return {topic: await self._read(topic) for topic in topics}

    async def _read(self, topic: bytes) -> Counters:
        """Read the counters of a topic; empty if another program's key is in their place."""
        try:
            counts = await self._shard.pages.fields(self._shard.key("COUNTS", topic))
            return Counters(counts, await self._shard.pages.fields(self._shard.key("DUE", topic)))
        except JobQueueError as error:
            if "WRONGTYPE" not in error.message:
                raise
            return Counters()

    async def check(self, found: FoundKeys, before: Mapping[bytes, Counters], tally: Tally) -> set[bytes]:
        """Compare the counts of all topics with a tally of their jobs, and correct them. `before`: the counters as they
        were when the tally began. Returns the topics that are still in doubt."""
        topics = before.keys() | tally.topics
        return {topic for topic in topics if await self._is_in_doubt(topic, found, before, tally)}

    async def _is_in_doubt(
        self, topic: bytes, found: FoundKeys, before: Mapping[bytes, Counters], tally: Tally
    ) -> bool:
        if {b"c:" + topic, b"h:" + topic} & found.spoilt:
            return False
        has_lists = await self._has_lists(topic)  # before the counts, which change if a list is created after this
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
        return bool(await read("EXISTS", self._shard.key("COUNTS", topic)))  # otherwise the topic was just forgotten

    async def _recount(self, topic: bytes, changes: list[Change]) -> bool:
        """Write counts, except those that changed meanwhile; returns whether all were written."""
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


_ADRIFT_MS = 300_000  # after this, no migration is still working on the jobs that it exported


async def read_lists(shard: CheckedShard, found: FoundKeys) -> set[int]:
    """The entries of all ready lists, as hashes of list and entry: there may be many millions."""
    listed: set[int] = set()
    for name in found.names["READY"]:
        async for page in shard.pages.entries(shard.key("READY", name)):
            listed |= {hash((name, entry)) for entry in page}
    return listed


class JobCheck:
    """The passes over the jobs of a shard."""

    def __init__(self, shard: CheckedShard) -> None:
        self._shard = shard
        self._missed: set[int] = set()  # entries that jobs should have and that the last pass did not meet
        self._missed_before: set[int] = set()  # likewise, in the pass before
        self.count = 0
        """How many jobs and tombstones the last pass met."""

    @property
    def is_in_doubt(self) -> bool:
        """Whether the last pass missed entries that only another pass can decide on."""
        return not self._missed <= self._missed_before

    async def check(self, begun_ms: int, listed: set[int]) -> Tally:
        """Check all jobs, and count them. `listed`: the entries of the ready lists, read after `begun_ms`."""
        self._missed_before, self._missed = self._missed, set()
        tally, seen = Tally(), set[int]()
        async for page in self._shard.pages.keys(f"{self._shard.keys.tag}{FAMILIES['JOB']}*"):
            ids = {hash(key): key[len(self._shard.tag) + 2 :] for key in page}
            new = [job_id for mark, job_id in ids.items() if mark not in seen]
            seen |= ids.keys()
            for some in chunks(new, PAGE):
                await self._check_page(some, begun_ms, listed, tally)
            self._shard.progress("jobs", len(seen))
        self.count = len(seen)
        return tally

    async def _check_page(self, ids: Sequence[bytes], begun_ms: int, listed: set[int], tally: Tally) -> None:
        shard = self._shard
        script = "mend" if shard.repair else "audit"
        now, counted, wanted, faults = await shard.call(script, ids, buckets=shard.pool.buckets)
        tally.add(counted)
        for job_id, fault in zip(faults[::2], faults[1::2], strict=True):
            shard.find(fault.decode(), shown(job_id))
        for job_id in ids:
            if shard_of(job_id.decode("utf-8", "replace"), len(shard.pool.keys)) != shard.number:
                shard.find("misplaced", shown(job_id), repaired=False)
        unlisted = []
        for name, entry, since in zip(wanted[::3], wanted[1::3], wanted[2::3], strict=True):
            is_recent = begun_ms <= int(since) <= now  # then the entry may be newer than the reading of the lists
            if hash((name, entry)) not in listed and not is_recent and self._is_missed_again(name, entry):
                unlisted.append(entry)
        if unlisted:
            await self._requeue(unlisted)

    def _is_missed_again(self, name: bytes, entry: bytes) -> bool:
        self._missed.add(hash((name, entry)))
        return hash((name, entry)) in self._missed_before

    async def _requeue(self, entries: Sequence[bytes]) -> None:
        results = await self._shard.call("requeue", entries) if self._shard.repair else [1] * len(entries)
        for entry, result in zip(entries, results, strict=True):
            if result:
                self._shard.find("unlisted", shown(entry.partition(b":")[2]))


async def check_entries(shard: CheckedShard, found: FoundKeys) -> None:
    """Check the entries of buckets, slices, dead letters and keys against the records of their jobs."""
    slices = sorted(found.names["SLICE"])  # the bounds of a bucket before its slices
    by_family = {"b": found.names["BUCKET"], "s": slices, "d": found.names["DEAD"]}
    for family, names in (by_family | {"kh": found.names["HOLDERS"], "kb": found.names["BLOCKED"]}).items():
        for name in names:
            shard.progress("entries", 0)
            async for page in shard.pages.members(shard.tag + family.encode() + b":" + name):
                for ids in chunks(page, PAGE):
                    await _check_some_entries(shard, family, name, ids)


async def _check_some_entries(shard: CheckedShard, family: str, name: bytes, ids: Sequence[bytes]) -> None:
    orphans = await shard.call("remove_orphans" if shard.repair else "find_orphans", ids, family=family, which=name)
    for job_id in orphans:
        shard.find("orphan", f"{shown(job_id)} in {family}:{shown(name)}")


async def check_adrift(shard: CheckedShard, found: FoundKeys, now_ms: int) -> None:
    """Find jobs and schedules that a migration exported to another Redis and left behind; put them back if
    repairing."""
    for name in found.names["EXPORTED"]:
        key = shard.key("EXPORTED", name)
        if now_ms - int(name.partition(b":")[0]) > _ADRIFT_MS and await shard.pool.redis.read("EXISTS", key):
            shard.find("adrift", shown(key), repaired=shard.repair and await _put_back(shard, key))


async def _put_back(shard: CheckedShard, key: bytes) -> bool:
    pairs = await shard.pool.redis.read("HGETALL", key)
    own: dict[str, Value] = {"bucket": 0, "buckets": shard.pool.buckets}
    try:
        if pairs and are_schedules(pairs):
            await shard.call("import_schedules", pairs, **own)
        else:
            await shard.call("import", pairs, verb=int(Verb.IMPORT), **own)
    except NoRoom:
        return False
    await shard.pool.redis.read("UNLINK", key)
    return True
