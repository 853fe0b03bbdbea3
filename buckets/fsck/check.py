"""The check of everything in Redis, while the service runs: it finds contradictions, and repairs them.

The pool is the truth, and the indexes are corrected to match it. Faults that show in one instant (a record against its
bucket, an entry against its record, a schedule against its entry) are found by a script, and repaired by a script that
checks again before it writes. Two checks take several passes, since the service keeps changing the data: whether a
ready job is in its list, and whether counts are right (both in counts.py). Schedules are checked here: each record by
itself and against its entry, and the sets of occurrences. One script sees both a record and its entry, so no second
look is needed.
"""

from __future__ import annotations

from typing import Self

from buckets.clock import Clock
from buckets.fsck.counts import CountCheck, JobCheck, check_adrift, check_entries, read_lists
from buckets.fsck.shard import PAGE, CheckedShard, FoundKeys, Progress, Report, check_keys, shown
from buckets.keys import shard_of
from buckets.layout import SCHEDULE
from buckets.namespace import Examination, examine
from buckets.pages import Pages, chunks
from buckets.pool.pool import Pool
from buckets.redis.client import Redis


async def check_schedules(shard: CheckedShard, found: FoundKeys) -> None:
    """Check all schedules of a shard."""
    script, cursor = "mend_schedules" if shard.repair else "audit_schedules", b"0"
    seen: set[bytes] = set()
    while True:
        cursor, names, faults = await shard.call(script, buckets=shard.pool.buckets, cursor=cursor)
        for name, fault in zip(faults[::2], faults[1::2], strict=True):
            shard.find(fault.decode(), _shown(name))
        for name in names:
            if shard_of(name.decode("utf-8", "replace"), len(shard.pool.keys)) != shard.number:
                shard.find("misplaced", _shown(name), repaired=False)
        seen |= set(names)
        shard.progress("schedules", len(seen))
        if cursor == b"0":
            break
    shard.report.schedules += len(seen)
    await _check_occurrences(shard, found)


async def _check_occurrences(shard: CheckedShard, found: FoundKeys) -> None:
    """Find sets of occurrences whose schedules are gone."""
    for names in chunks(found.names["OCCURRENCES"], PAGE):
        script = "remove_orphans" if shard.repair else "find_orphans"
        for name in await shard.call(script, names, family="o", which=""):
            shard.find("orphan", f"o:{shown(name)}")


def _shown(name: bytes) -> str:
    return SCHEDULE + shown(name)


PASSES = 3
REST = 2.0


class Fsck:
    """A check of one namespace. Made by `open`."""

    def __init__(self, pool: Pool, found: Examination, repair: bool, rest: float, progress: Progress | None) -> None:
        self._pool = pool
        self._found = found
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
        """Open a namespace whose settings may be damaged. `buckets`: how many buckets to assume if nothing reveals the
        number; `rest`: for how many seconds to leave Redis to others after each second of work.

        Raises Unfit for a namespace of another version.
        """
        found = await examine(redis, namespace, buckets)
        pool = Pool(redis, namespace, *found.numbers, clock)
        pool.switches, pool.slices_ms = found.switches or pool.switches, found.slices_ms
        return cls(pool, found, repair, rest, progress)

    async def run(self) -> Report:
        """Check the namespace, and repair it if asked to; returns the findings."""
        if self._found.empty:
            return self.report
        for shard, fault in self._found.faults.items():
            if self._repair and fault != "gone":
                await self._pool.call("set_aside", shard, suffix="meta", wanted="none")
            if self._repair:
                await self._pool.ensure_meta(shard)
            self.report.find("meta", f"{self._pool.keys[shard].meta}: {fault}", repaired=self._repair)
        for shard in range(len(self._pool.keys)):
            pages = Pages(self._pool.redis, self._rest)
            await _ShardCheck(CheckedShard(self._pool, shard, pages, self.report, self._repair, self._progress)).run()
        return self.report


class _ShardCheck:
    """The passes over one shard."""

    def __init__(self, shard: CheckedShard) -> None:
        self._shard = shard
        self._jobs = JobCheck(shard)
        self._counts = CountCheck(shard)
        self._topics = 0  # seen by the last pass

    async def run(self) -> None:
        for turn in range(PASSES):
            doubtful = await self._pass(is_first=turn == 0)
            # A topic that was busy in two passes stays busy; an error that was seen once must be seen again.
            is_settled = not doubtful or (turn > 0 and not doubtful & self._counts.errors.keys())
            if is_settled and not self._jobs.is_in_doubt:
                break
        report, keys, read = self._shard.report, self._shard.keys, self._shard.pool.redis.read
        report.jobs += self._jobs.count
        report.topics += self._topics
        report.unverified += [shown(topic) for topic in sorted(doubtful)]
        report.aside += await read("HLEN", keys.aside) if await read("TYPE", keys.aside) == b"hash" else 0

    async def _pass(self, *, is_first: bool) -> set[bytes]:
        """Check everything; checks that need no second look are in the first pass only. Returns the topics whose counts
        could not be judged."""
        shard = self._shard
        begun_ms, *_ = await shard.call("audit", [], buckets=shard.pool.buckets)
        found = await check_keys(shard)
        await check_adrift(shard, found, begun_ms)
        listed = await read_lists(shard, found)
        before = await self._counts.read(found.topics)
        tally = await self._jobs.check(begun_ms, listed)
        doubtful = await self._counts.check(found, before, tally)
        self._topics = len(tally.topics | before.keys())
        if is_first:
            await check_schedules(shard, found)
            await check_entries(shard, found)
        return doubtful
