"""The time of a test service: it stands still until it is advanced, and then everything happens that was due meanwhile.

An advance goes from one due time to the next, so that each job moves at its own time, as the timers would have moved
it: a lease that ends begins its back-off at its end, not at the end of the advance. No other script runs in between.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from buckets.clock import SteppedClock
from buckets.keys import FAMILIES
from buckets.pages import Pages
from buckets.pool.stepped_pool import QueuedPool, SteppedPool
from buckets.schedules.occurrences import Occurrences, Planner
from buckets.schedules.schedules import Schedules
from buckets.timers.sweep import Sweep
from buckets.waiting.waiting import Waiting

# What is the service's own, not the jobs'.
_KEPT = ("meta", *(FAMILIES[family] for family in ("MEMBERS", "CARDS", "LOCK", "WORKERS", "TOKENS")))


class HeldTime:
    """The time of one test service, in place of its timers and sweeps."""

    def __init__(self, pool: QueuedPool, waiting: Waiting, sweeps: Sequence[Sweep], plan: Planner) -> None:
        self._clock: SteppedClock = pool.clock
        self._pool = SteppedPool(pool.redis, pool.namespace, len(pool.keys), pool.buckets, pool.clock)
        self._occurrences = Occurrences(Schedules(self._pool), plan)
        self._waiting = waiting
        self._sweeps = sweeps

    @property
    def now_ms(self) -> int:
        """The time, in ms since the epoch."""
        return self._clock.now_us // 1000

    async def advance(self, ms: int) -> None:
        """Let `ms` milliseconds pass, at least: due times are whole ones and were rounded up. When this returns, what
        fell due is ready, and pops that wait for it have been woken."""
        async with self._clock.in_use:
            await self._pass_until(-(-self._clock.now_us // 1000) * 1000 + ms * 1000)
        for sweep in self._sweeps:
            await sweep.tick()
        self._waiting.look_again()

    async def _pass_until(self, end_us: int) -> None:
        """Move what falls due until then, each bucket's at its time."""
        buckets = [(shard, bucket) for shard in range(len(self._pool.keys)) for bucket in range(self._pool.buckets)]
        due: dict[tuple[int, int], float] = dict.fromkeys(buckets, 0)  # all are looked at once
        while min(due.values()) <= end_us:
            shard, bucket = min(buckets, key=due.__getitem__)
            self._clock.now_us = max(self._clock.now_us, int(due[shard, bucket]))
            met: list[str] = []
            _, wait_us, _ = await self._pool.due(shard, bucket, met=met)
            due[shard, bucket] = self._clock.now_us + wait_us if wait_us >= 0 else math.inf
            if met:
                await self._occurrences.make(shard, bucket, met)
                due |= {each: 0 for each in buckets if each[0] == shard}  # one may hold what was made
        self._clock.now_us = max(self._clock.now_us, end_us)

    async def reset(self) -> None:
        """Forget all jobs and topics, and set the clock to the host's time."""
        async with self._clock.in_use:
            for shard in self._pool.keys:
                kept = tuple((shard.tag + name).encode() for name in _KEPT)
                async for keys in Pages(self._pool.redis).keys(f"{shard.tag}*"):
                    gone = [key for key in keys if not key.startswith(kept)]
                    if gone:
                        await self._pool.redis.read("UNLINK", *gone)
            self._clock.now_us = SteppedClock().now_us
