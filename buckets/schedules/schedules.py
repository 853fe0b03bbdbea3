"""The schedules of a namespace: one method for each operation on a named schedule, and listing schedules."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from buckets.errors import JobQueueError
from buckets.keys import Keys, shard_of
from buckets.pool.pool import Pool
from buckets.schedules.record import Schedule, unpack_schedule
from buckets.shards import MOST

_SCANNED = 50  # records per step of a listing


class Seen(NamedTuple):
    """What a caller has read before it defines a schedule: the time (ms since the epoch), and the existing schedule, if
    any."""

    now: int
    schedule: Schedule | None


class Schedules:
    """The schedules of one namespace."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool

    def shard(self, name: str) -> int:
        """The shard of a schedule, which is also the shard of its occurrences."""
        return shard_of(name, len(self.pool.keys))

    async def read(self, shard: int, names: Sequence[str]) -> tuple[int, list[Schedule | None]]:
        """The time (ms since the epoch) and schedules of a shard, with None for a schedule that does not exist or
        cannot be read."""
        now, *records = await self.pool.call("read_schedules", shard, names, now=self.pool.clock.now())
        return now, [_unpacked(*each) for each in zip(names, records, strict=True)]

    async def see(self, name: str) -> Seen:
        """Read a schedule, for `define`."""
        now, (schedule,) = await self.read(self.shard(name), [name])
        return Seen(now, schedule)

    async def define(self, name: str, seen: Seen, definition: bytes, start: int, next_ms: int) -> str:
        """Define a schedule, or redefine it: returns created, existing (for the same definition as before, which keeps
        its times), replaced, or changed if it has changed since it was seen, and nothing was done. `start`, `next_ms`:
        see Schedule. Raises NoRoom."""
        result, _ = await self.pool.call(
            "define",
            self.shard(name),
            now=self.pool.clock.now(),
            id=name,
            seen=seen.schedule.revision if seen.schedule else 0,
            start=start,
            next_ms=next_ms,
            bucket=self.pool.next_bucket(),
            definition=definition,
        )
        return str(result.decode())

    async def undefine(self, seen: Schedule) -> int | None:
        """Remove a schedule; returns how many of its occurrences are live, or None if the schedule has changed since it
        was seen, and nothing was done. Raises NotFound."""
        shard = self.shard(seen.name)
        result, last = await self.pool.call(
            "undefine", shard, now=self.pool.clock.now(), id=seen.name, seen=seen.revision
        )
        if result == b"changed":
            return None
        live, some = 0, MOST
        while some == MOST:
            occurrences = await self.pool.call("forget_occurrences", shard, id=seen.name, last=last, most=MOST)
            some = len(occurrences)
            live += await self.pool.call("count_live", shard, [f"{seen.name}@{each.decode()}" for each in occurrences])
        return live

    async def mend(self, shard: int, cursor: bytes) -> tuple[bytes, int]:
        """Correct the entries of some schedules to match their records; returns the cursor for the next schedules (`0`
        if these were the last), and how many entries were wrong."""
        following, _, faults = await self.pool.call(
            "mend_schedules", shard, now=self.pool.clock.now(), buckets=self.pool.buckets, cursor=cursor
        )
        return following, len(faults) // 2

    async def count(self) -> int:
        """The number of schedules."""
        return sum(await asyncio.gather(*(self._count(keys) for keys in self.pool.keys)))

    async def _count(self, keys: Keys) -> int:
        try:
            return int(await self.pool.redis.read("HLEN", keys.schedules))
        except JobQueueError as error:
            if "WRONGTYPE" not in error.message:
                raise
            return 0  # another program's key is in their place

    async def page(self, shard: int, cursor: int, pattern: str) -> tuple[list[Schedule], int]:
        """Some schedules of a shard whose names match a Redis pattern, and the cursor for the next ones (0 if these
        were the last). A schedule that exists throughout is returned at least once, perhaps twice."""
        found, flat = await self.pool.redis.read(
            "HSCAN", self.pool.keys[shard].schedules, cursor, "MATCH", pattern, "COUNT", _SCANNED
        )
        pairs = zip(flat[::2], flat[1::2], strict=True)
        schedules = [_unpacked(name.decode("utf-8", "replace"), raw) for name, raw in pairs]
        return [each for each in schedules if each], int(found)


def _unpacked(name: str, raw: bytes | None) -> Schedule | None:
    try:
        return unpack_schedule(name, raw) if raw is not None else None
    except ValueError:
        return None  # the next move that finds the record sets it aside
