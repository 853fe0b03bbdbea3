"""The clock of the queue: Redis's own, or one that a test sets.

Every script has an argument `now`. When it is empty, the script asks Redis (`TIME`), so the clocks of the service's
hosts do not matter. This is the only place where a test can substitute another time.
"""

from __future__ import annotations

import asyncio
import time


class Clock:
    """Redis's clock."""

    def now(self) -> str:
        """The argument `now` of scripts: empty, so that they ask Redis."""
        return ""


class HeldClock(Clock):
    """A clock for tests, which stands still until it is advanced. `now_us`: microseconds since the epoch; the default
    is not a round time, which could hide rounding errors."""

    def __init__(self, now_us: int = 1_800_000_007_654_000) -> None:
        self.now_us = now_us

    def now(self) -> str:
        return str(self.now_us)

    def advance(self, ms: int) -> None:
        """Advance by `ms` milliseconds."""
        self.now_us += ms * 1000


class SteppedClock(HeldClock):
    """The clock of a test service (`jobqueue serve --test`). It starts at the host's time and stands still, except that
    each script advances it by a microsecond: leases and ready numbers are derived from the time and must not repeat."""

    def __init__(self) -> None:
        super().__init__(time.time_ns() // 1000)
        self.in_use = asyncio.Lock()
        """Held while a script runs, and throughout an advance: no script may run between the steps of an advance."""

    def step(self) -> str:
        """The argument `now` of the next script."""
        self.now_us += 1
        return str(self.now_us)
