"""The limits of topics: how many jobs are delivered a second, and how many may be reserved at a time.

Scripts check the limits, which the popping process passes to them (limits.lua). Pops of topics without limits are not
affected.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from buckets.scripts import Value

LATE_S = 0.01  # by which a pop may be late without lowering the rate
_MARGIN = 0.001  # permits: more than rounding errors can add up to


@dataclass(frozen=True, slots=True)
class Limit:
    """The limits of a topic: deliveries a second, and jobs reserved at a time. 0 for any number."""

    rate: float = 0.0
    concurrency: int = 0

    @property
    def burst(self) -> float:
        """How many permits of the rate may be saved: enough for pops that are a little late, but not so many that a
        second could have more deliveries than the rate plus a hundredth of it (or plus one, if that is more)."""
        excess = max(1.0, self.rate / 100)
        room = math.floor(self.rate + excess) + 1 - self.rate - _MARGIN  # deliveries are whole
        return max(excess, min(excess + self.rate * LATE_S, room))

    @property
    def arguments(self) -> list[Value]:
        """The arguments of scripts after the name of the topic."""
        return [repr(self.rate), repr(self.burst), self.concurrency] if self.rate else ["", 0, self.concurrency]


@dataclass(slots=True)
class Granted:
    """The permits of a topic that were taken in a shard other than the one that is asked for its jobs."""

    permits: int

    @property
    def arguments(self) -> list[Value]:
        """As `Limit.arguments`."""
        return ["0", self.permits, 0]


Limits = Mapping[str, Limit]
"""By topic; topics without limits are left out."""
NO_LIMIT = Limit()


class Closed(NamedTuple):
    """A topic whose limit (rate or concurrency) holds back ready jobs, and after how many us a pop should look
    again."""

    topic: str
    limit: str
    opens_us: int


def read_closed(flat: Sequence[Any]) -> tuple[Closed, ...]:
    """Read topic, limit, us, … as scripts return them."""
    return tuple(
        Closed(topic.decode("utf-8", "replace"), limit.decode(), us)
        for topic, limit, us in zip(flat[::3], flat[1::3], flat[2::3], strict=True)
    )
