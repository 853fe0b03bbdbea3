"""The locks of the timers.

A bucket's timer runs in the one process that holds the bucket's lock. That saves work and guards nothing: a move is
atomic by itself, so two timers on one bucket do no harm. One script beats for all locks of a shard. A lock falls
free a second after its holder died, and at once when it stops in order: then it rings. The holder trusts a lock for
less time than Redis keeps it (the idea of a lease that is given up before it ends).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets

from buckets.bell import Bell
from buckets.errors import JobQueueError, NoMeta, Unavailable
from buckets.pool import Pool

log = logging.getLogger(__name__)

LEASE_S = 1.0
BEAT_S = 0.3
_TRUST_S = 0.9


class Locks:
    """The locks of one shard, as this process holds them."""

    def __init__(self, pool: Pool, bell: Bell, shard: int) -> None:
        self._pool = pool
        self._free = bell.free(shard)
        self.shard = shard
        self.token = secrets.token_hex(8)
        self.held = [asyncio.Event() for _ in range(pool.buckets)]
        self.last_beat = 0.0  # loop time of the last answer of Redis

    async def tick(self) -> None:
        """Beat once: keep what is ours, take what is free."""
        begun = asyncio.get_running_loop().time()
        try:
            ours = await self._pool.beat(self.shard, self.token, int(LEASE_S * 1000))
        except NoMeta:
            log.error("namespace.lost", extra={"shard": self.shard})
            await self._pool.found(self.shard)
            return
        self.last_beat = begun
        for event, mine in zip(self.held, ours, strict=True):
            self._hold(event, mine)

    def _hold(self, event: asyncio.Event, mine: bool) -> None:
        if event.is_set() != mine:
            self._pool.redis.meter.locked(mine)
        (event.set if mine else event.clear)()

    async def run(self) -> None:
        """Beat for ever, or until cancelled; then the locks are given up."""
        try:
            while True:
                self._free.clear()
                try:
                    async with asyncio.timeout(_TRUST_S):
                        await self.tick()
                except (JobQueueError, TimeoutError) as error:
                    self._distrust(error)
                except Exception:
                    log.exception("lock.failed", extra={"shard": self.shard})
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(BEAT_S):
                        await self._free.wait()
        finally:
            await self._give_up()

    def _distrust(self, error: Exception) -> None:
        if asyncio.get_running_loop().time() - self.last_beat < _TRUST_S:
            return
        if any(event.is_set() for event in self.held):
            log.warning("lock.lost", extra={"shard": self.shard, "error": str(error) or str(Unavailable())})
        for event in self.held:
            self._hold(event, False)

    async def _give_up(self) -> None:
        for event in self.held:
            self._hold(event, False)
        with contextlib.suppress(JobQueueError, TimeoutError):
            async with asyncio.timeout(1):
                await self._pool.unlock(self.shard, self.token)
