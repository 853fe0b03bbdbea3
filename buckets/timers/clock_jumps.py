"""Detects jumps of Redis's clock.

Jobs follow Redis's clock wherever it goes. So an operator wants to know when it jumps: somebody set it, or another
Redis, on a host with a different time, took over. It is compared with this process's monotonic clock, which nobody
sets. Redis read its clock at some moment between our question and the answer's arrival: so a process that was paused,
or a slow network, makes the comparison less exact, but is not taken for a jump.
"""

from __future__ import annotations

import logging
import time
from math import inf

from buckets.meter import Meter

log = logging.getLogger(__name__)

_EXACT_S = 0.1  # a slower answer is too inexact to compare two clocks


class ClockJumps:
    """What is known of Redis's clock. `limit_s`: a jump by more is reported."""

    def __init__(self, meter: Meter, limit_s: float = 1.0) -> None:
        self._meter = meter
        self._limit_s = limit_s
        # Redis's clock minus ours is between these two.
        self._least = -inf
        self._most = inf

    def compare(self, asked: float, answered: float, redis_s: float) -> float:
        """Take in Redis's time, in s since the epoch, and the `time.monotonic` of the question and the answer. Returns
        by how many seconds its clock has jumped ahead (below 0: back), and 0 for a jump within the limit."""
        if answered - asked < _EXACT_S:
            self._meter.compared(redis_s - time.time())
        least, most = redis_s - answered, redis_s - asked
        jump = max(least - self._most, 0.0) or min(most - self._least, 0.0)
        if jump:  # or the clocks run at different rates: either way, what was known is void
            self._least, self._most = least, most
        else:
            self._least, self._most = max(least, self._least), min(most, self._most)
        if abs(jump) <= self._limit_s:
            return 0.0
        log.warning("clock.jumped", extra={"ahead_s": round(jump, 3)})
        self._meter.jumped(jump)
        return jump
