"""Changes that are to be safer than a Redis which has them in its memory: replicated, or fsynced.

They go over a connection of their own, since WAIT holds up what is asked behind it, and a barrier
(buckets/durability/barrier.py) follows them there. What is told was reached; where that is not known, it is `local`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence, Set
from typing import Any, NamedTuple

from buckets.add_codec import Added
from buckets.durability.barrier import LOCAL, Barrier, Durability
from buckets.errors import JobQueueError, Unanswered, Unavailable
from buckets.keys import Keys, shard_of
from buckets.pool import Pool
from buckets.redis.link import Link

_TRIES = 3  # to change and to learn what was reached, when connections are lost meanwhile

Work = Callable[[Sequence[Any]], Awaitable[Sequence[Any]]]
"""Changes a job for each of some items; the results in their order, with errors in their places."""


class Want(NamedTuple):
    """A change and how durable it is to be."""

    id: str
    """Of its job."""
    durability: Durability
    item: Any
    """What the work takes for it."""


class Told(NamedTuple):
    """What became of a change, and what it reached."""

    result: Any
    durability: Durability


class Durable:
    """Makes changes durable. `pool`: where, on a Redis of its own; `replicas`: how many must have a replicated change;
    `timeout_s`: how long to wait for that, but at most half of the time that Redis has for an answer."""

    def __init__(self, pool: Pool, replicas: int, timeout_s: float) -> None:
        self.pool = pool
        self._replicas = replicas
        self._timeout_ms = max(round(min(timeout_s, pool.redis.timeout_s / 2) * 1000), 1)
        self._barriers: dict[Link, Barrier] = {}

    async def change(self, wants: Sequence[Want], work: Work, *, repeat: bool = True) -> list[Told]:
        """Make changes, those of each shard for themselves, and tell what each reached. `repeat`: whether `work` may be
        done again when its connection was lost before that was known; else it is `local` then."""
        tries = _TRIES if repeat else 1
        if len(self.pool.keys) == 1:
            told = await self._in_shard(self.pool.keys[0], wants, work, tries)
        else:
            told = await self._in_shards(wants, work, tries)
        self._count(wants, told)
        return told

    async def _in_shards(self, wants: Sequence[Want], work: Work, tries: int) -> list[Told]:
        places: dict[int, list[int]] = {}
        for place, want in enumerate(wants):
            places.setdefault(shard_of(want.id, len(self.pool.keys)), []).append(place)
        parts = [
            self._in_shard(self.pool.keys[shard], [wants[place] for place in own], work, tries)
            for shard, own in places.items()
        ]
        told: list[Any] = [None] * len(wants)
        for own, some in zip(places.values(), await asyncio.gather(*parts), strict=True):
            for place, each in zip(own, some, strict=True):
                told[place] = each
        return told

    async def _in_shard(self, shard: Keys, wants: Sequence[Want], work: Work, tries: int) -> list[Told]:
        told = [Told(Unavailable(), LOCAL)] * len(wants)
        with contextlib.suppress(TimeoutError, Unavailable):
            async with asyncio.timeout(self.pool.redis.timeout_s):
                for _ in range(tries):
                    link = await self.pool.redis.link_to(shard.meta)
                    results = await work([want.item for want in wants])
                    told = [Told(_kept(before.result, now), LOCAL) for before, now in zip(told, results, strict=True)]
                    done = {want.durability for want, now in zip(wants, results, strict=True) if not _failed(now)}
                    with contextlib.suppress(Unanswered):
                        reached = await self._reached(link, shard, done - {LOCAL})
                        return [
                            each._replace(durability=want.durability)
                            if want.durability in reached and not _failed(now)
                            else each
                            for want, each, now in zip(wants, told, results, strict=True)
                        ]
        return told

    async def _reached(self, link: Link, shard: Keys, wanted: Set[str]) -> Set[str]:
        """Which of these is true of what was done in the shard over the link. Raises Unanswered where nobody knows."""
        if not wanted:
            return wanted
        if await self.pool.redis.link_to(shard.meta) is not link:
            raise Unanswered  # it may have been done over either
        return await self._barrier_of(link).reached(shard, wanted)

    def _barrier_of(self, link: Link) -> Barrier:
        if link not in self._barriers:
            self._barriers = {each: barrier for each, barrier in self._barriers.items() if not each.lost}
            self._barriers[link] = Barrier(link, self._replicas, self._timeout_ms, self.pool.redis.meter)
        return self._barriers[link]

    def _count(self, wants: Sequence[Want], told: Sequence[Told]) -> None:
        """Tell the meter what was asked for beyond `local`, and what was reached."""
        numbers: dict[tuple[str, str], int] = {}
        for want, each in zip(wants, told, strict=True):
            if want.durability != LOCAL and not _failed(each.result):
                pair = want.durability, each.durability
                numbers[pair] = numbers.get(pair, 0) + 1
        for (asked, reached), changes in numbers.items():
            self.pool.redis.meter.secured(asked, reached, changes)


def _failed(result: Any) -> bool:
    return isinstance(result, JobQueueError)


def _kept(before: Any, now: Any) -> Any:
    """What to tell of a change that was made once more: mostly it found what it had done itself."""
    if _failed(before):
        return now
    if isinstance(now, list):
        return [_kept(*each) for each in zip(before, now, strict=True)]
    return now if isinstance(now, Added) and now.result != "existing" else before
