"""The time of a test service: it stands still until it is advanced, and then everything that fell due meanwhile
happens.

An advance goes from one due time to the next, so that each job moves at its own time, as the timers would have moved
it: a lease that ends begins its back-off at its end, not at the end of the advance. No other script runs in between.
The scripts of a test service's pools get the time of a `SteppedClock`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from buckets.clock import SteppedClock
from buckets.keys import FAMILIES
from buckets.pages import Pages
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from buckets.redis.link import Orphan
from buckets.schedules.occurrences import Occurrences, Planner
from buckets.schedules.schedules import Schedules
from buckets.scripts import Value
from buckets.timers.sweep import Sweep
from buckets.waiting.waiting import Waiting

# About live instances, pollers, access and the log of actions, not about jobs.
_BY_REAL_TIME = {"sign_in", "report_workers", "write_tokens", "lease_rate", "note_actions"}


class SteppedPool(Pool):
    """A pool in which each script runs a microsecond after the previous one. Used only to advance the clock; everything
    else uses a `QueuedPool`."""

    def __init__(self, redis: Redis, namespace: str, shards: int, buckets: int, clock: SteppedClock) -> None:
        super().__init__(redis, namespace, shards, buckets, clock)
        self.clock: SteppedClock = clock
        for lane in self._lanes:
            lane.closed = True  # their scripts would not wait for their turn

    async def call(
        self,
        script: str,
        shard: int,
        rest: Sequence[Value] = (),
        *,
        repeat: bool | None = None,
        orphan: Orphan | None = None,
        **arguments: Value,
    ) -> Any:
        """As `Shards.call`. The time is that of sending the script, which may be long after the caller's request."""
        if "now" in arguments:
            arguments["now"] = "" if script in _BY_REAL_TIME else self.clock.step()
        return await super().call(script, shard, rest, repeat=repeat, orphan=orphan, **arguments)


class QueuedPool(SteppedPool):
    """A pool whose scripts wait for each other, and for the end of an advance of the clock."""

    async def call(self, script: str, shard: int, rest: Sequence[Value] = (), **arguments: Any) -> Any:
        """As `SteppedPool.call`, once it is this script's turn."""
        async with self.clock.in_use:
            return await super().call(script, shard, rest, **arguments)


# Keys of the service itself, not of jobs.
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
        """Let at least `ms` milliseconds pass: due times are whole milliseconds, rounded up. On return, jobs that fell
        due are ready, and pops that wait for them have been woken."""
        async with self._clock.in_use:
            await self._pass_until(-(-self._clock.now_us // 1000) * 1000 + ms * 1000)
        for sweep in self._sweeps:
            await sweep.tick()
        self._waiting.look_again()

    async def _pass_until(self, end_us: int) -> None:
        """Move the entries of all buckets that fall due until `end_us`, each at its own time."""
        buckets = [(shard, bucket) for shard in range(len(self._pool.keys)) for bucket in range(self._pool.buckets)]
        due: dict[tuple[int, int], float] = dict.fromkeys(buckets, 0)  # every bucket is checked once
        while min(due.values()) <= end_us:
            shard, bucket = min(buckets, key=due.__getitem__)
            self._clock.now_us = max(self._clock.now_us, int(due[shard, bucket]))
            met: list[str] = []
            _, wait_us, _ = await self._pool.due(shard, bucket, met=met)
            due[shard, bucket] = self._clock.now_us + wait_us if wait_us >= 0 else math.inf
            if met:
                await self._occurrences.make(shard, bucket, met)
                due |= {each: 0 for each in buckets if each[0] == shard}  # any of these may hold the created jobs
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
