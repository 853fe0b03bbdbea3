"""The slicing of a namespace: far jobs move from the sets of their buckets into slices, which take less memory
(lua/include/slices.lua). A namespace of format 1, which an older version founded, has no slices until it is upgraded.

A shard's far jobs are moved by the process that holds the lock of its first bucket; two at once do no harm. A process
rests 19 times as long as it works, so adds are hardly slower. If more far jobs come than it can move (5,000 to 10,000 a
second), they wait where they are.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from buckets.errors import JobQueueError
from buckets.namespace import FORMAT, SLICES_MS, read_meta, slices_of
from buckets.pool.pool import Pool
from buckets.shards import Shards
from buckets.timers.cards import read_instances

log = logging.getLogger(__name__)

EVERY_S = 10.0
LEAST = 1000
"""A bucket with fewer far jobs has no slices: they are not worth the work."""
_PAGE = 200  # entries per script: about a millisecond of Redis
_REST = 19  # seconds for each second of work
_GONE_MS = 60_000  # an instance that signed its list last before this is gone, though no other has removed it
_CARD_S = 1.0  # from the first signature of an instance until its card is written


async def outdated(shards: Shards) -> list[str]:
    """The live instances that do not know slices, or do not say what they know: their names. The timers of such an
    instance would never find the jobs in slices."""
    since_ms = await shards.now_ms() - _GONE_MS
    found = [each for each in await read_instances(shards) if each.signed > since_ms]
    if not all(each.about for each in found):
        await asyncio.sleep(_CARD_S)
        found = [each for each in await read_instances(shards) if each.signed > since_ms]
    return [each.name or "an instance" for each in found if not each.about or each.about.format < FORMAT]


async def upgrade(shards: Shards, shard: int) -> None:
    """Let a shard have slices; does nothing if it may have them already. No instance may be `outdated`. Raises
    NoMeta."""
    await shards.call("set_format", shard, format=FORMAT, slices=SLICES_MS)


class Slicing:
    """The slicing of all shards, as far as this process does it."""

    def __init__(self, pool: Pool, rest: float = _REST, least: int = LEAST) -> None:
        """`rest`: seconds of rest for each second of work; `least`: a bucket with fewer far jobs is left alone."""
        self._pool = pool
        self._rest = rest
        self._least = least
        # By shard and bucket, how many far entries the last pass could not move; a little less with each tick since.
        self._stayed = [[0] * pool.buckets for _ in pool.keys]

    async def tick(self, shard: int) -> int:
        """Move the far jobs of a shard, if its buckets have enough of them; returns how many. While an instance is
        outdated, none are moved."""
        far_ms = await self._pool.now_ms() + self._pool.slices_ms
        full = [bucket for bucket in range(self._pool.buckets) if await self._is_full(shard, bucket, far_ms)]
        self._stayed[shard] = [stayed * 199 // 200 for stayed in self._stayed[shard]]
        if not full:
            return 0
        if older := await outdated(self._pool):
            log.error("slicing.outdated", extra={"shard": shard, "instances": ", ".join(older)})
            return 0
        return sum([await self._slice(shard, bucket) for bucket in full])

    async def _is_full(self, shard: int, bucket: int, far_ms: int) -> bool:
        """Whether a bucket has enough far jobs. Those that cannot be moved are looked at again once a good part of all
        is new, or after some minutes."""
        least = self._least + self._stayed[shard][bucket] * 5 // 4
        key = self._pool.keys[shard].bucket(bucket)
        number: int = await self._pool.redis.read("ZCOUNT", key, f"({far_ms}", "+inf")
        return number >= least

    async def _slice(self, shard: int, bucket: int) -> int:
        total, skipped, is_full = 0, 0, True
        clock = asyncio.get_running_loop().time
        while is_full:
            begun = clock()
            moved, stayed = await self._pool.slice(shard, bucket, skipped, _PAGE)
            total, skipped, is_full = total + moved, skipped + stayed, moved + stayed == _PAGE
            await asyncio.sleep(self._rest * (clock() - begun))
        self._stayed[shard][bucket] = skipped
        return total

    async def run(self, held: Sequence[asyncio.Event]) -> None:
        """Move far jobs until cancelled. `held`: for each shard, whether this process holds the lock of its first
        bucket."""
        while True:
            for shard, is_held in enumerate(held):
                try:
                    slices_ms = slices_of(await read_meta(self._pool.redis, self._pool.keys[shard]))
                    self._pool.slices_ms = self._pool.slices_ms if slices_ms is None else slices_ms
                    if slices_ms and is_held.is_set():
                        await self.tick(shard)
                except JobQueueError as error:
                    log.warning("slicing.failed", extra={"shard": shard, "error": str(error)})
                except Exception:
                    log.exception("slicing.failed", extra={"shard": shard})
            await asyncio.sleep(EVERY_S)
