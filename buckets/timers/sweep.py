"""The sweep of a shard: every half minute it deletes dead letters beyond their bounds and forgets idle topics, removes
the oldest events if the stream of events has too many bytes, and corrects the entries of schedules.

It runs in the process that holds the lock of the shard's first bucket; two at once do no harm.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from buckets.errors import JobQueueError
from buckets.events.stream import MOST_BYTES, bound_events
from buckets.pages import Pages
from buckets.schedules.schedules import Schedules
from buckets.timers.locks import Locks
from buckets.topics.topics import Bounds, Topics

log = logging.getLogger(__name__)

EVERY_S = 30.0
_MENDED = 500  # scripts per sweep, each for 20 schedules: some 50 ms of Redis


class Sweep:
    """The sweep of one shard. `idle_s`: how long a topic without jobs is remembered; `events_bytes`: the most memory of
    the stream of events."""

    def __init__(
        self,
        topics: Topics,
        locks: Locks,
        bounds_of: Callable[[str], Bounds],
        idle_s: float,
        events_bytes: int = MOST_BYTES,
    ) -> None:
        self._topics = topics
        self._events_bytes = events_bytes
        self._shard = locks.shard
        self._held = locks.held[0]
        self._bounds_of = bounds_of
        self._idle_ms = int(idle_s * 1000)
        self._every_s = min(EVERY_S, max(idle_s, 0.1))
        self._cursor = b"0"  # where the next sweep continues with the schedules

    async def tick(self) -> None:
        """Sweep once."""
        dead = await self._topics.bound(self._shard, self._bounds_of)
        topics = await self._topics.forget(self._shard, self._idle_ms)
        events = await bound_events(self._topics.pool, self._shard, self._events_bytes)
        schedules = await self._mend_schedules()
        if dead or topics or events or schedules:
            swept = {"dead_letters": dead, "topics": topics, "events": events, "schedules": schedules}
            log.info("shard.swept", extra={"shard": self._shard, **swept})

    async def _mend_schedules(self) -> int:
        """Correct the entries of schedules; returns how many were wrong. A schedule would have no more occurrences
        without its entry, which a timer of an older version, without support for schedules, removes."""
        schedules, pages, mended = Schedules(self._topics.pool), Pages(self._topics.pool.redis, rest=1.0), 0
        for _ in range(_MENDED):
            self._cursor, wrong = await pages.step(schedules.mend(self._shard, self._cursor))
            mended += wrong
            if self._cursor == b"0":
                break
        return mended

    async def run(self) -> None:
        """Sweep while the lock is held, until cancelled."""
        while True:
            await self._held.wait()
            try:
                await self.tick()
            except JobQueueError as error:
                log.warning("sweep.failed", extra={"shard": self._shard, "error": str(error)})
            except Exception:
                log.exception("sweep.failed", extra={"shard": self._shard})
            await asyncio.sleep(self._every_s)
