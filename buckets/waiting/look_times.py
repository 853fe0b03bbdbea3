"""When waiting pops look without being rung: one timer of the event loop for all of them, as one for each would take
more memory than the pop itself."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from math import inf

from buckets.pool.sleepers import OVER, Waiter

_FEW = 100  # pops that are over and stay in their places


class LookTimes:
    """The waiting pops in the order in which they look."""

    def __init__(self, look: Callable[[Waiter], None]) -> None:
        self._look = look
        self._waiters: list[Waiter] = []  # a heap, with some that are over
        self._over = 0  # of them
        self._timer: asyncio.TimerHandle | None = None

    def add(self, waiter: Waiter, time: float) -> None:
        """It looks at this time of the loop; it has no other one."""
        waiter.look_at = time
        heapq.heappush(self._waiters, waiter)
        if self._waiters[0] is waiter:
            self._set_timer()

    def discard(self, waiter: Waiter) -> None:
        """It is over."""
        if waiter.look_at < inf:
            self._over += 1
            if self._over > _FEW and 2 * self._over > len(self._waiters):
                self._waiters = [each for each in self._waiters if each.state != OVER]
                self._over = 0
                heapq.heapify(self._waiters)

    def _set_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(self._waiters[0].look_at, self._reach)

    def _reach(self) -> None:
        """Let those look whose time has come."""
        self._timer = None
        now = asyncio.get_running_loop().time()
        try:
            while self._waiters and self._waiters[0].look_at <= now:
                waiter = heapq.heappop(self._waiters)
                waiter.look_at = inf
                if waiter.state == OVER:
                    self._over -= 1
                else:
                    self._look(waiter)
        finally:
            if self._waiters:
                self._set_timer()
