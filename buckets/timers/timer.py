"""The timer of a bucket: moves due entries, and sleeps until an entry is due.

There is no fixed interval. A page of due entries is one script, which returns how long nothing will be due; adding an
earlier entry rings the bell, unless the timer looks again before that entry is due. So an idle bucket costs nothing,
and a job in a busy bucket is late by one round trip. While pops wait in this process, the timer is already awake when
an entry falls due.

A process that has slept, and a Redis that has had nothing to do, are slow at first: their code has left the caches. So
while pops wait here, a timer wakes `AHEAD_S` early and asks Redis. That warms up both, and Redis returns the remaining
time. The timer waits for the rest without sleeping: other callbacks run, but the core is busy. All timers of a process
together may do so for a share of the time.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from buckets.errors import JobQueueError
from buckets.pool.pool import PAGE, Pool
from buckets.redis.outage import Outage
from buckets.redis.server import SILENT_S
from buckets.schedules.occurrences import Occurrences
from buckets.timers.locks import Locks
from buckets.timers.sleep import LeadTime, PreciseSleep
from buckets.waiting.waiting import Waiting

AHEAD_S = 1e-3
LONGEST_S = 1.2e-3  # of one wait awake
_SAVED_S = 0.02  # the most waiting time that can be saved up for a rush: some twenty waits


class Awake:
    """The share of time for which the timers of a process may stay awake."""

    def __init__(self, share: float, now: Callable[[], float] = time.monotonic) -> None:
        """`share`: the share of the time, from 0 (never) to 1. `now`: a monotonic clock in seconds."""
        self._share = share
        self._now = now
        self._left_s = 0.0
        self._added_at = now()
        self._paid_until = 0.0

    @property
    def is_allowed(self) -> bool:
        """Whether enough of the share is left for one wait."""
        now = self._now()
        self._left_s = min(self._left_s + (now - self._added_at) * self._share, _SAVED_S)
        self._added_at = now
        return self._left_s >= LONGEST_S

    async def wait(self, seconds: float, alarm: asyncio.Event) -> bool:
        """Wait for `seconds` or until the event is set. Returns whether the time ran out."""
        now = self._now()
        end = now + seconds
        while now < end and not alarm.is_set():
            begun = now
            await asyncio.sleep(0)
            now = self._now()
            self._pay(begun, now)
        return now >= end

    def _pay(self, begun: float, end: float) -> None:
        """Charge a wait to the share. Time during which several timers wait at once is charged only once."""
        self._left_s -= end - max(begun, self._paid_until)
        self._paid_until = end


log = logging.getLogger(__name__)

_LONGEST_SLEEP_S = 10.0  # scripts rely on it (timer_alarm.lua)
_AFTER_ERROR_S = 0.1
_NEAR_US = 1000  # a tick that comes too early is early by less than this


class Timer:
    """The timer of one bucket."""

    def __init__(
        self,
        pool: Pool,
        waiting: Waiting,
        locks: Locks,
        bucket: int,
        awake: Awake,
        occurrences: Occurrences | None = None,
    ) -> None:
        """`awake`, `occurrences`: shared by all timers of the process; without `occurrences`, schedules create no
        jobs."""
        self._pool = pool
        self._waiting = waiting
        self._awake = awake
        self._occurrences = occurrences
        self._alarm = waiting.notifier.alarm(locks.shard, bucket)
        self._held = locks.held[bucket]
        self._shard = locks.shard
        self._bucket = bucket
        self._asleep, self._at_once = LeadTime(), LeadTime()  # for ticks after a sleep, and after a wait awake
        self._outage = Outage(log, "timer.failed", "timer.found")
        self._asked_at = 0.0  # when the last tick began, by the monotonic clock
        self._timed: LeadTime | None = None  # set if the next tick is for an entry that falls due, with this lead

    async def tick(self) -> float:
        """Move a page of due entries; returns for how many seconds nothing will be due (0 to continue at once)."""
        timed, self._timed = self._timed, None
        self._asked_at = time.monotonic()
        moved, wait_us = await self._page()
        if timed and (moved or 0 < wait_us < _NEAR_US):  # otherwise the job for which the timer waited is gone
            timed.learn(early=not moved)
        return _LONGEST_SLEEP_S if wait_us < 0 else min(wait_us / 1e6, _LONGEST_SLEEP_S)

    async def _page(self) -> tuple[int, int]:
        """Move a page of due entries, handing jobs to sleeping pops here if possible. If the script fails, these pops
        continue to sleep."""
        async with self._pool.paging[self._shard]:  # offer only now: waiting here would hold the pops back
            offers = [] if self._pool.is_away(self._shard) else self._waiting.sleepers(PAGE)
            handed, met = None, list[str]()
            # Pops that are offered to a silent server must look for jobs elsewhere, and end in time.
            silent = asyncio.get_running_loop().call_later(SILENT_S, self._waiting.settle, offers, None)
            try:
                moved, wait_us, handed = await self._pool.due(self._shard, self._bucket, offers, met)
            finally:
                silent.cancel()
                self._waiting.settle(offers, handed)
        if met and self._occurrences:
            self._occurrences.meet(self._shard, self._bucket, met)
        return moved, wait_us

    async def run(self) -> None:
        """Tick while the lock is held, until cancelled."""
        sleep = PreciseSleep(self._alarm)
        try:
            while True:
                await self._held.wait()
                self._alarm.clear()
                wait = await self._ticked()
                if wait > 0:
                    await self._pass(wait, sleep)
        finally:
            sleep.close()

    async def _pass(self, wait: float, sleep: PreciseSleep) -> None:
        """Let `wait` seconds pass until the next tick. While pops wait for jobs, that tick comes too early on purpose,
        and the one after it on time."""
        longest = _LONGEST_SLEEP_S - (time.monotonic() - self._asked_at)  # from the script, not from its reply
        if wait >= longest:
            await sleep.sleep(max(longest, AHEAD_S))
            return
        if self._waiting.parked and self._awake.is_allowed:
            if wait > LONGEST_S:
                await sleep.sleep(wait - AHEAD_S)
            else:
                lead = self._at_once.lead_s
                over = await self._awake.wait(wait - lead, self._alarm)
                self._timed = self._at_once if over and wait > lead else None
            return
        over = await sleep.sleep(self._asleep.shorten(wait))
        if over and self._asleep.applies_to(wait):
            self._timed = self._asleep

    async def _ticked(self) -> float:
        """Like `tick`, but logs an error and then returns the pause before the next try."""
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
