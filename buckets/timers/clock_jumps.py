"""The drift of Redis's clock, as a process sees it: it tells when that clock jumps.

Jobs follow Redis's clock whatever it does. So an operator wants to know when it makes a jump: somebody set it, or
another Redis, on a host with another time, has taken over. It is compared with this process's monotonic clock, which
nobody sets. An answer of Redis was given at some time between the question and its arrival here: so a process that
stood still, or a slow network, makes this less exact, and is no jump.
"""

from __future__ import annotations

import logging
import time
from math import inf

from buckets.meter import Meter

log = logging.getLogger(__name__)

_EXACT_S = 0.1  # an answer that took longer says too little of how two clocks compare


class ClockJumps:
    """What is known of Redis's clock. `limit_s`: a jump by more is told."""

    def __init__(self, meter: Meter, limit_s: float = 1.0) -> None:
        self._meter = meter
        self._limit_s = limit_s
        # Redis's clock less ours lies between these two.
        self._least = -inf
        self._most = inf

    def compare(self, asked: float, answered: float, redis_s: float) -> float:
        """Redis told its time, in s since the epoch, between two moments of `time.monotonic`. Returns by how many
        seconds its clock has jumped ahead (back: below 0), 0 when that is within the limit."""
        if answered - asked < _EXACT_S:
            self._meter.compared(redis_s - time.time())
        least, most = redis_s - answered, redis_s - asked
        jump = max(least - self._most, 0.0) or min(most - self._least, 0.0)
        if jump:  # or the clocks' pace differs: what was known holds no more
            self._least, self._most = least, most
        else:
            self._least, self._most = max(least, self._least), min(most, self._most)
        if abs(jump) <= self._limit_s:
            return 0.0
        log.warning("clock.jumped", extra={"ahead_s": round(jump, 3)})
        self._meter.jumped(jump)
        return jump
