"""The timer of a bucket: moves what is due, and sleeps until something is.

There is no fixed interval. A page of due entries is one script, which answers how long nothing will be due; an earlier
entry rings the bell. So an idle bucket costs nothing, and a job of a busy one is late by a round trip.
"""

from __future__ import annotations

import logging

from buckets.errors import JobQueueError
from buckets.notifier import Notifier
from buckets.outage import Outage
from buckets.pool.pool import Pool
from buckets.timers.lead_time import LeadTime
from buckets.timers.locks import Locks
from buckets.timers.precise_sleep import PreciseSleep

log = logging.getLogger(__name__)

_LONGEST_SLEEP_S = 10.0  # in case a message is lost
_AFTER_ERROR_S = 0.1
_NEAR_US = 1000  # a tick that comes too early is early by less


class Timer:
    """The timer of one bucket."""

    def __init__(self, pool: Pool, notifier: Notifier, locks: Locks, bucket: int) -> None:
        self._pool = pool
        self._alarm = notifier.alarm(locks.shard, bucket)
        self._held = locks.held[bucket]
        self._shard = locks.shard
        self._bucket = bucket
        self._lead_time = LeadTime()
        self._outage = Outage(log, "timer.failed", "timer.found")
        self._is_timed = False  # whether the next tick comes because something falls due, not because the bell rang

    async def tick(self) -> float:
        """Move a page of due entries; returns for how many seconds nothing will be due (0: go on at once)."""
        is_timed, self._is_timed = self._is_timed, False
        moved, wait_us, _ = await self._pool.due(self._shard, self._bucket)
        if is_timed and (moved or 0 < wait_us < _NEAR_US):  # else the job that it waited for is gone
            self._lead_time.learn(early=not moved)
        return _LONGEST_SLEEP_S if wait_us < 0 else min(wait_us / 1e6, _LONGEST_SLEEP_S)

    async def run(self) -> None:
        """Tick while the lock is held, until cancelled."""
        sleep = PreciseSleep(self._alarm)
        try:
            while True:
                await self._held.wait()
                self._alarm.clear()
                wait = await self._ticked()
                if wait > 0:
                    undisturbed = await sleep.sleep(self._lead_time.shorten(wait))
                    self._is_timed = undisturbed and wait < _LONGEST_SLEEP_S and self._lead_time.applies_to(wait)
        finally:
            sleep.close()

    async def _ticked(self) -> float:
        """As `tick`; after an error, which is logged, a pause."""
        try:
            wait = await self.tick()
            if self._outage.is_on:
                self._outage.end(shard=self._shard, bucket=self._bucket)
            return wait
        except JobQueueError as error:
            self._outage.begin(error, shard=self._shard, bucket=self._bucket)
        except Exception:
            log.exception("timer.broke", extra={"bucket": self._bucket})
        return _AFTER_ERROR_S
