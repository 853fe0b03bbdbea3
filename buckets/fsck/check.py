"""The check of all that is in Redis, while the service runs: finds what does not fit together, and mends it.

The pool is the truth, and the indexes are made to follow it. What can be judged in one instant (a record against its
bucket, an entry against its record) is judged by a script, and repaired by one that looks again. Two things cannot:

- Whether a ready job stands in its list. The lists are read first. A job that has been ready since before, and whose
  entry was not met, has none if a second pass, which begins after the entry was missed, does not meet it either. (The
  time alone does not tell: clocks go back.)
- Whether counts are right. They are compared with a scan only where they were the same at its begin and at its end, and
  believed wrong when a second pass finds the same error.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from buckets.clock import Clock
from buckets.errors import JobQueueError, NoRoom
from buckets.fsck.counts import Change, Counters, Tally
from buckets.fsck.findings import Report, shown
from buckets.keys import FAMILIES, shard_of
from buckets.namespace import Meta, examine
from buckets.pages import Pages, chunks
from buckets.pool import Pool
from buckets.redis.client import Redis

PASSES = 3
REST = 2.0
_PAGE = 64  # jobs a script: about 1 ms of Redis
_FIELDS = 100  # counts a script
_ADRIFT_MS = 300_000  # after which no mover is behind the jobs that one took

# What the keys of a family must be: a type of Redis, or one of the words of set_aside.lua.
_FORMS = {
    "JOB": ("", "string"),
    "BUCKET": (r"\d{1,3}", "zset"),
    "READY": (r"\d:.+", "list"),
    "DEAD": (".+", "zset"),
    "COUNTS": (".+", "hash"),
    "DUE": (".+", "hash"),
    "TOPICS": ("", "zset"),
    "PAUSED": (".+", "moment"),
    "ASIDE": ("", "hash"),
    "EXPORTED": (r"\d+:[0-9a-f]+", "hash"),
    "EVENTS": ("", "stream"),
    "LOCK": (r"\d{1,3}", "lock"),
    "MEMBERS": ("", "zset"),
    "BARRIER": ("", "lock"),
}
_NAMES = [(re.compile((FAMILIES[each] + rest).encode(), re.S), each, kind) for each, (rest, kind) in _FORMS.items()]

Progress = Callable[[str, int], None]


@dataclass(slots=True)
class _Sight:
    """What one pass saw before it came to the jobs."""

    begun: int = 0  # ms
    keys: defaultdict[str, list[bytes]] = field(default_factory=lambda: defaultdict(list))  # by family
    spoilt: set[bytes] = field(default_factory=set)  # keys that cannot be read as what they should be
    entries: set[int] = field(default_factory=set)  # of ready lists, as hashes: there may be many millions
    before: dict[bytes, Counters] = field(default_factory=dict)


class Fsck:
    """A check of one namespace. Made by `open`."""

    def __init__(self, pool: Pool, meta: Meta, repair: bool, rest: float, progress: Progress | None) -> None:
        self._pool = pool
        self._meta = meta
        self._repair = repair
        self._rest = rest
        self._progress = progress or (lambda what, number: None)
        self.report = Report()

    @classmethod
    async def open(
        cls,
        redis: Redis,
        namespace: str = "jq",
        *,
        buckets: int = 8,
        repair: bool = False,
        rest: float = REST,
        clock: Clock | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Look at a namespace whose settings may be damaged; `buckets` is how many there are if nothing tells it,
        `rest` how many seconds Redis is left to others after each second of work.

        Raises Unfit for one of another version.
        """
        meta = await examine(redis, namespace, buckets)
        pool = Pool(redis, namespace, meta.shards, meta.buckets, clock)
        return cls(pool, meta, repair, rest, progress)

    async def run(self) -> Report:
        """Check, and with `repair` mend; what was found."""
        if self._meta.empty:
            return self.report
        for shard, fault in self._meta.faults.items():
            if self._repair and fault != "gone":
                await self._pool.call("set_aside", shard, suffix="meta", wanted="none")
            if self._repair:
                await self._pool.found(shard)
            self.report.find("meta", f"{self._pool.keys[shard].meta}: {fault}", repaired=self._repair)
        for shard in range(len(self._pool.keys)):
            pages = Pages(self._pool.redis, self._rest)
            await _ShardCheck(self._pool, shard, self.report, self._repair, pages, self._progress).run()
        return self.report


class _ShardCheck:
    def __init__(self, pool: Pool, shard: int, report: Report, repair: bool, pages: Pages, progress: Progress) -> None:
        self._pool = pool
        self._shard = shard
        self._keys = pool.keys[shard]
        self._tag = self._keys.tag.encode()
        self._report = report
        self._repair = repair
        self._progress = progress
        self._pages = pages
        self._errors: dict[bytes, list[tuple[str, bytes, bytes | int]]] = {}  # by topic, as the last pass saw them
        self._jobs = self._topics = 0  # that the last pass saw
        self._missed: set[int] = set()  # entries that jobs want and the last pass did not meet

    async def run(self) -> None:
        for turn in range(PASSES):
            doubts, again = await self._pass(turn == 0)
            # What is busy twice is busy always; an error that was seen once must be seen again.
            if not again and (not doubts or (turn > 0 and not doubts & self._errors.keys())):
                break
        self._report.jobs += self._jobs
        self._report.topics += self._topics
        self._report.unverified += [shown(topic) for topic in sorted(doubts)]
        aside = await self._pool.redis.read("TYPE", self._keys.aside)
        self._report.aside += await self._pool.redis.read("HLEN", self._keys.aside) if aside == b"hash" else 0

    async def _pass(self, first: bool) -> tuple[set[bytes], bool]:
        """Check everything, what needs no second look in the first pass only; the topics whose counts could not be
        judged, and whether to look at jobs again."""
        sight = _Sight(begun=(await self._call("audit", [], buckets=self._pool.buckets))[0])
        await self._look_at_keys(sight)
        await self._look_at_batches(sight)
        await self._look_at_lists(sight)
        for topic in self._known(sight):
            sight.before[topic] = await self._counters(topic)
        missed, self._missed = self._missed, set()
        tally = await self._look_at_jobs(sight, missed)
        doubts = {topic for topic in sight.before.keys() | tally.topics if await self._judge(topic, sight, tally)}
        self._topics = len(tally.topics | sight.before.keys())
        if first:
            await self._look_at_entries(sight)
        return doubts, not self._missed <= missed

    async def _call(self, script: str, rest: Sequence[bytes] = (), **arguments: Any) -> Any:
        now = self._pool.clock.now()
        return await self._pages.step(self._pool.call(script, self._shard, rest, now=now, **arguments))

    def _find(self, kind: str, where: str, *, repaired: bool | None = None) -> None:
        self._report.find(kind, where, repaired=self._repair if repaired is None else repaired)

    # Keys

    async def _look_at_keys(self, sight: _Sight) -> None:
        self._progress("keys", 0)
        async for page in self._pages.keys(f"{self._keys.tag}*"):
            names = [key.removeprefix(self._tag) for key in page]
            await asyncio.gather(*(self._look_at_key(sight, name) for name in names if not name.startswith(b"j:")))

    async def _look_at_key(self, sight: _Sight, name: bytes) -> None:
        family, wanted = next(((each, kind) for form, each, kind in _NAMES if form.fullmatch(name)), ("", ""))
        if name == b"meta":
            return
        if not family:
            self._report.foreign.add(shown(self._tag + name), False)
        elif await self._is_spoilt(self._tag + name, wanted):
            evicted = self._repair and await self._pool.call("set_aside", self._shard, suffix=name, wanted=wanted)
            self._find("spoilt", shown(self._tag + name), repaired=bool(evicted))
            sight.spoilt |= set() if evicted else {name}
        else:
            sight.keys[family].append(name.removeprefix(FAMILIES[family].encode()))

    async def _is_spoilt(self, key: bytes, wanted: str) -> bool:
        read = self._pool.redis.read
        kind: str = (await read("TYPE", key)).decode()
        if kind == "none":
            return False
        if kind == "string" and wanted == "moment":
            return re.fullmatch(rb"\d+", await read("GET", key) or b"0") is None
        if kind == "string" and wanted == "lock":
            return bool(await read("PTTL", key) == -1)
        return kind != wanted

    # Jobs that were taken to be put into another Redis

    async def _look_at_batches(self, sight: _Sight) -> None:
        for name in sight.keys["EXPORTED"]:
            key = self._key("EXPORTED", name)
            if sight.begun - int(name.partition(b":")[0]) > _ADRIFT_MS and await self._pool.redis.read("EXISTS", key):
                self._find("adrift", shown(key), repaired=self._repair and await self._put_back(key))

    async def _put_back(self, key: bytes) -> bool:
        pairs = await self._pool.redis.read("HGETALL", key)
        try:
            await self._call("import", pairs, bucket=0, buckets=self._pool.buckets)
        except NoRoom:
            return False
        await self._pool.redis.read("UNLINK", key)
        return True

    # Ready lists

    async def _look_at_lists(self, sight: _Sight) -> None:
        for name in sight.keys["READY"]:
            async for page in self._pages.entries(self._key("READY", name)):
                sight.entries |= {hash((name, entry)) for entry in page}

    def _key(self, family: str, name: bytes) -> bytes:
        return self._tag + FAMILIES[family].encode() + name

    # Jobs

    async def _look_at_jobs(self, sight: _Sight, missed: set[int]) -> Tally:
        tally, seen = Tally(), set[int]()
        async for page in self._pages.keys(f"{self._keys.tag}{FAMILIES['JOB']}*"):
            ids = {hash(key): key[len(self._tag) + 2 :] for key in page}
            new = [job_id for mark, job_id in ids.items() if mark not in seen]
            seen |= ids.keys()
            for some in chunks(new, _PAGE):
                await self._look_at_page(some, sight, tally, missed)
            self._progress("jobs", len(seen))
        self._jobs = len(seen)
        return tally

    async def _look_at_page(self, ids: Sequence[bytes], sight: _Sight, tally: Tally, missed: set[int]) -> None:
        script = "mend" if self._repair else "audit"
        now, counted, wanted, faults = await self._call(script, ids, buckets=self._pool.buckets)
        tally.add(counted)
        for job_id, fault in zip(faults[::2], faults[1::2], strict=True):
            self._find(fault.decode(), shown(job_id))
        for job_id in ids:
            if shard_of(job_id.decode("utf-8", "replace"), len(self._pool.keys)) != self._shard:
                self._find("misplaced", shown(job_id), repaired=False)
        lost = []
        for name, entry, since in zip(wanted[::3], wanted[1::3], wanted[2::3], strict=True):
            if hash((name, entry)) not in sight.entries and self._is_lost(name, entry, int(since), now, sight, missed):
                lost.append(entry)
        if lost:
            await self._requeue(lost)

    def _is_lost(self, name: bytes, entry: bytes, since: int, now: int, sight: _Sight, missed: set[int]) -> bool:
        """Whether an entry that was not met is not there. It may be younger than the walk through the lists."""
        if sight.begun <= since <= now:
            return False
        self._missed.add(hash((name, entry)))
        return hash((name, entry)) in missed

    async def _requeue(self, entries: Sequence[bytes]) -> None:
        results = await self._call("requeue", entries) if self._repair else [1] * len(entries)
        for entry, result in zip(entries, results, strict=True):
            if result:
                self._find("unlisted", shown(entry.partition(b":")[2]))

    # Entries of buckets and of dead letters

    async def _look_at_entries(self, sight: _Sight) -> None:
        for family, names in (("b", sight.keys["BUCKET"]), ("d", sight.keys["DEAD"])):
            for name in names:
                self._progress("entries", 0)
                async for page in self._pages.members(self._tag + family.encode() + b":" + name):
                    for ids in chunks(page, _PAGE):
                        await self._look_at_some_entries(family, name, ids)

    async def _look_at_some_entries(self, family: str, name: bytes, ids: Sequence[bytes]) -> None:
        orphans = await self._call("remove_orphans" if self._repair else "find_orphans", ids, family=family, which=name)
        for job_id in orphans:
            self._find("orphan", f"{shown(job_id)} in {family}:{shown(name)}")

    # Counts

    def _known(self, sight: _Sight) -> Iterable[bytes]:
        lists = [name.partition(b":")[2] for name in sight.keys["READY"]]
        return {*sight.keys["COUNTS"], *sight.keys["DUE"], *lists}

    async def _counters(self, topic: bytes) -> Counters:
        """What Redis holds of a topic; nothing where another program's key is in the way."""
        try:
            counts = await self._pages.fields(self._key("COUNTS", topic))
            return Counters(counts, await self._pages.fields(self._key("DUE", topic)))
        except JobQueueError as error:
            if "WRONGTYPE" not in error.message:
                raise
            return Counters()

    async def _judge(self, topic: bytes, sight: _Sight, tally: Tally) -> bool:
        """Compare a topic's counts with its jobs, and put them right; whether that is left in doubt."""
        if {b"c:" + topic, b"h:" + topic} & sight.spoilt:
            return False
        has_lists = await self._has_lists(topic)  # before the counts: a list that came since changes them
        after = await self._counters(topic)
        if after != sight.before.get(topic, Counters()):
            return True
        changes = tally.changes(topic, after)
        if has_lists and not tally.has_ready(topic) and not any(change.name == b"ready" for change in changes):
            changes.append(Change("c", b"ready", after.counts.get(b"ready", b""), after.counts.get(b"ready", b"")))
        errors = sorted(((each.family, each.name, each.error) for each in changes), key=repr)
        if errors != self._errors.get(topic, []):
            self._errors[topic] = errors
            return True
        await self._settle(topic, after, changes)
        return False

    async def _has_lists(self, topic: bytes) -> bool:
        names = [self._key("READY", b"%d:%s" % (priority, topic)) for priority in range(10)]
        return bool(await self._pool.redis.read("EXISTS", *names))

    async def _settle(self, topic: bytes, counters: Counters, changes: list[Change]) -> None:
        unknown = counters.counts and await self._is_unknown(topic)
        if changes:
            only_lists = len(changes) == 1 and changes[0].name == b"ready" and changes[0].seen == changes[0].wanted
            kind = "idle_list" if only_lists else "miscounted"
            settled = self._repair and await self._recount(topic, changes)
            self._find(kind, shown(topic), repaired=settled)
            if settled:
                del self._errors[topic]
        if unknown:
            settled = self._repair and await self._recount(topic, [])
            self._find("unknown_topic", shown(topic), repaired=settled)

    async def _is_unknown(self, topic: bytes) -> bool:
        try:
            if await self._pool.redis.read("ZSCORE", self._keys.topics, topic) is not None:
                return False
        except JobQueueError:
            pass  # another program's key stands in the place of the list
        return bool(await self._pool.redis.read("EXISTS", self._key("COUNTS", topic)))  # else it was just forgotten

    async def _recount(self, topic: bytes, changes: list[Change]) -> bool:
        """Write counts, each as far as it was not changed meanwhile; whether all are."""
        parts = [
            (family, some)
            for family in "ch"
            for some in chunks([change for change in changes if change.family == family], _FIELDS)
        ]
        done = []
        for family, some in parts or [("c", [])]:
            fields = [text for each in some for text in (each.name, each.seen, each.wanted)]
            done.append(await self._call("recount", fields, family=family, topic=topic))
        return all(done)
