"""The timer of a bucket: moves what is due, and sleeps until something is.

There is no fixed tick. A page of due entries is one script; its answer says how long nothing will be due. An earlier
entry rings the notifier. So an idle bucket costs nothing and a busy one is as late as a round trip.
"""

from __future__ import annotations

import logging

from buckets.errors import JobQueueError
from buckets.notifier import Notifier
from buckets.pool import Pool
from buckets.timers.lead_time import LeadTime
from buckets.timers.locks import Locks
from buckets.timers.precise_sleep import PreciseSleep

log = logging.getLogger(__name__)

_LOOK_S = 10.0  # the longest sleep: should a bell ever be missed, this is the end of it
_AFTER_ERROR_S = 0.1
_NEAR_US = 1000  # who comes too early is early by less


class Timer:
    """The timer of one bucket."""

    def __init__(self, pool: Pool, notifier: Notifier, locks: Locks, bucket: int) -> None:
        self._pool = pool
        self._alarm = notifier.alarm(locks.shard, bucket)
        self._held = locks.held[bucket]
        self._shard = locks.shard
        self._bucket = bucket
        self._aim = LeadTime()
        self._aimed = False  # whether the next tick comes when something falls due, and not because the bell rang

    async def tick(self) -> float:
        """Move a page of what is due; returns for how many seconds nothing will be (0: go on)."""
        aimed, self._aimed = self._aimed, False
        moved, wait_us = await self._pool.due(self._shard, self._bucket)
        if aimed and (moved or 0 < wait_us < _NEAR_US):  # else what was waited for is gone
            self._aim.learn(early=not moved)
        return _LOOK_S if wait_us < 0 else min(wait_us / 1e6, _LOOK_S)

    async def run(self) -> None:
        """Tick while the lock is held, for ever."""
        nap = PreciseSleep(self._alarm)
        try:
            while True:
                await self._held.wait()
                self._alarm.clear()
                wait = await self._ticked()
                if wait > 0:
                    undisturbed = await nap.sleep(self._aim.shorten(wait))
                    self._aimed = undisturbed and wait < _LOOK_S and self._aim.takes(wait)
        finally:
            nap.close()

    async def _ticked(self) -> float:
        """As `tick`; an error is logged, and is a reason for a pause."""
        try:
            return await self.tick()
        except JobQueueError as error:
            log.warning("timer.failed", extra={"bucket": self._bucket, "error": str(error)})
        except Exception:
            log.exception("timer.failed", extra={"bucket": self._bucket})
        return _AFTER_ERROR_S
