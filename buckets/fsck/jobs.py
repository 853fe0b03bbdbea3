"""The check of jobs: each record by itself, against its bucket and its ready list; and each entry against its record.

When a ready job's list was read and its entry not met, the job may have become ready since. So a second pass decides,
which begins after the entry was missed, and does not meet it either. (Its time alone cannot: clocks go back.)
"""

from __future__ import annotations

from collections.abc import Sequence

from buckets.errors import NoRoom
from buckets.fsck.counts import Tally
from buckets.fsck.findings import shown
from buckets.fsck.keys import FoundKeys
from buckets.fsck.shard import PAGE, CheckedShard
from buckets.job import Verb
from buckets.keys import FAMILIES, shard_of
from buckets.pages import chunks
from buckets.schedules.moving import are_schedules
from buckets.scripts import Value

_ADRIFT_MS = 300_000  # then no migration is still working on the jobs that it took


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
        self._missed: set[int] = set()  # entries that jobs want and the last pass did not meet
        self._missed_before: set[int] = set()  # and the pass before it
        self.count = 0
        """How many jobs and tombstones the last pass met."""

    @property
    def is_in_doubt(self) -> bool:
        """Whether the last pass missed entries that only another pass can decide on."""
        return not self._missed <= self._missed_before

    async def check(self, begun_ms: int, listed: set[int]) -> Tally:
        """Check all jobs, and count them. `listed`: the entries of the ready lists, read since `begun_ms`."""
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
            is_recent = begun_ms <= int(since) <= now  # then it may be younger than the walk through the lists
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
    """Check the entries of buckets and of dead letters against the records of their jobs."""
    for family, names in (("b", found.names["BUCKET"]), ("d", found.names["DEAD"])):
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
    """Find jobs and schedules that a migration took for another Redis and left behind; put them back."""
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
