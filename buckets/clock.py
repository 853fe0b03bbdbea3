"""The clock of the queue: Redis's own, or one that a test holds in its hand.

Every script takes an optional `now`. Left empty, the script asks Redis (`TIME`), so the clocks of the
service's hosts do not matter. This is the only place where a test can put another time.
"""

from __future__ import annotations


class Clock:
    """Redis's clock."""

    def now(self) -> str:
        """What scripts get as `now`: empty, so that they ask Redis."""
        return ""


class HeldClock(Clock):
    """A clock that stands still until it is moved; for tests. Microseconds since the epoch; it begins at no round time,
    which could hide what is rounded."""

    def __init__(self, now_us: int = 1_800_000_007_654_000) -> None:
        self.now_us = now_us

    def now(self) -> str:
        return str(self.now_us)

    def advance(self, ms: int) -> None:
        """Move on by `ms` milliseconds."""
        self.now_us += ms * 1000
