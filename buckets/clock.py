"""The clock of the queue: Redis's own, or one that a test sets.

Every script has an argument `now`. When it is empty, the script asks Redis (`TIME`), so the clocks of the service's
hosts do not matter. This is the only place where a test can substitute another time.
"""

from __future__ import annotations


class Clock:
    """Redis's clock."""

    def now(self) -> str:
        """The argument `now` of scripts: empty, so that they ask Redis."""
        return ""


class HeldClock(Clock):
    """A clock for tests, which stands still until it is advanced. `now_us`: microseconds since the epoch; it does not
    begin at a round time, which could hide rounding errors."""

    def __init__(self, now_us: int = 1_800_000_007_654_000) -> None:
        self.now_us = now_us

    def now(self) -> str:
        return str(self.now_us)

    def advance(self, ms: int) -> None:
        """Advance by `ms` milliseconds."""
        self.now_us += ms * 1000
