"""The check of schedules: each record by itself and against its entry, and the sets of occurrences.

One script sees both a record and its entry, so no second look is needed.
"""

from __future__ import annotations

from buckets.fsck.findings import shown
from buckets.fsck.keys import FoundKeys
from buckets.fsck.shard import PAGE, CheckedShard
from buckets.keys import shard_of
from buckets.layout import SCHEDULE
from buckets.pages import chunks


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
