"""The end of a timer's wait, spent awake.

A process that has slept, and a Redis that has had nothing to do, are slow at first: their code has left the caches. So
while somebody waits for jobs here, a timer wakes `AHEAD_S` early and asks Redis. That warms both, and Redis says how
long it still is. The timer waits for the rest of it without sleeping: other callbacks run, but the core is busy. All
timers of a process together may do so for a share of the time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

AHEAD_S = 1e-3
LONGEST_S = 1.2e-3  # at once
_SAVED_S = 0.02  # the most that can be saved up for a rush: some twenty waits


class Awake:
    """What the timers of a process may be awake for."""

    def __init__(self, share: float, now: Callable[[], float] = time.monotonic) -> None:
        """`share`: of the time, 0 (never) to 1. `now`: a monotonic clock in seconds."""
        self._share = share
        self._now = now
        self._left_s = 0.0
        self._added_at = now()
        self._paid_until = 0.0

    @property
    def is_allowed(self) -> bool:
        """Whether there is enough left of the share for one wait."""
        now = self._now()
        self._left_s = min(self._left_s + (now - self._added_at) * self._share, _SAVED_S)
        self._added_at = now
        return self._left_s >= LONGEST_S

    async def wait(self, seconds: float, alarm: asyncio.Event) -> bool:
        """Wait for `seconds` or until the event is set. Returns whether the time was over."""
        now = self._now()
        end = now + seconds
        while now < end and not alarm.is_set():
            begun = now
            await asyncio.sleep(0)
            now = self._now()
            self._pay(begun, now)
        return now >= end

    def _pay(self, begun: float, end: float) -> None:
        """What several timers wait for together is paid once."""
        self._left_s -= end - max(begun, self._paid_until)
        self._paid_until = end
