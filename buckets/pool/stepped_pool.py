"""The pools of a test service, whose scripts get the time of a `SteppedClock`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from buckets.clock import SteppedClock
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from buckets.redis.link import Orphan
from buckets.scripts import Value

# Who is alive, who polls, who has access, and what was done: not about jobs.
_BY_REAL_TIME = {"sign_in", "report_workers", "write_tokens", "lease_rate", "note_actions"}


class SteppedPool(Pool):
    """A pool in which each script runs a microsecond after the one before. For whoever advances the clock; all others
    use a `QueuedPool`."""

    def __init__(self, redis: Redis, namespace: str, shards: int, buckets: int, clock: SteppedClock) -> None:
        super().__init__(redis, namespace, shards, buckets, clock)
        self.clock: SteppedClock = clock
        for lane in self._lanes:
            lane.closed = True  # what they send does not wait for its turn

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
        """As `Shards.call`. The time is taken when the script is sent, which may be long after the caller asked."""
        if "now" in arguments:
            arguments["now"] = "" if script in _BY_REAL_TIME else self.clock.step()
        return await super().call(script, shard, rest, repeat=repeat, orphan=orphan, **arguments)


class QueuedPool(SteppedPool):
    """A pool whose scripts wait for each other, and for the end of an advance of the clock."""

    async def call(self, script: str, shard: int, rest: Sequence[Value] = (), **arguments: Any) -> Any:
        """As `SteppedPool.call`, when it is this script's turn."""
        async with self.clock.in_use:
            return await super().call(script, shard, rest, **arguments)
