"""The history: every ten seconds each process adds its counts to the figures in Redis (buckets/topics/figures.py).

So rates and lateness of the last hours can be seen for all instances, and after a restart, without Prometheus. A
process that counted nothing sends nothing to Redis. Counts that Redis does not accept are dropped: no job depends on
them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict

import structlog

from buckets import Figures
from buckets.errors import JobQueueError
from buckets.topics.figures import ALL
from jobqueue.errors import group_of
from jobqueue.metrics.process import OTHER, Counted, Metrics

log = structlog.get_logger()

EVERY_S = 10.0
_LEAVE_S = 1.0  # how long a shutdown waits for Redis

# The names of the numbers in Redis.
ADDS, DELIVERIES, FINISHES = "adds", "deliveries", "finishes"
DIED, REFUSED = "x:", "no:"  # prefixes of a cause, and of the group of a code
READY, DELIVERED = "r", "d"  # prefixes of the number of a lateness bucket


class History:
    """Adds the counts of one process to the figures of its namespace."""

    def __init__(self, metrics: Metrics, figures: Figures) -> None:
        self._metrics = metrics
        self._figures = figures
        self._is_dropping = False

    async def tick(self) -> None:
        """Add the counts since the last call."""
        counted = numbers_of(self._metrics.take())
        if not counted:
            return
        try:
            await self._figures.add(counted)
            self._is_dropping = False
        except JobQueueError as error:
            if not self._is_dropping:
                log.warning("figures.dropped", code=error.code)
            self._is_dropping = True

    async def run(self) -> None:
        """Add the counts every ten seconds, and the rest at the end."""
        try:
            while True:
                await asyncio.sleep(EVERY_S)
                try:
                    await self.tick()
                except Exception:
                    log.exception("figures.failed")
        finally:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LEAVE_S):
                    await self.tick()


def numbers_of(counted: Counted) -> dict[str, dict[str, int]]:
    """The counts as named numbers, by topic. The sums over all topics are under `ALL`."""
    numbers: defaultdict[str, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))

    def add(topic: str, name: str, number: int) -> None:
        numbers[ALL][name] += number
        if topic != OTHER:
            numbers[topic][name] += number

    for name, series in (
        (ADDS, counted.added),
        (DELIVERIES, counted.redelivered),
        (FINISHES, counted.finished),
    ):
        for topic, number in series.items():
            add(topic, name, number)
    for (topic, cause), number in counted.died.items():
        add(topic, f"{DIED}{cause}", number)
    for (topic,), buckets in counted.delivered.items():
        add(topic, DELIVERIES, sum(buckets))
    for name, spread in ((READY, counted.ready), (DELIVERED, counted.delivered)):
        for (topic,), buckets in spread.items():
            for place, number in enumerate(buckets):
                if number:
                    add(topic, f"{name}{place}", number)
    for (_, _, code), number in counted.commands.items():
        if code != "OK":
            numbers[ALL][f"{REFUSED}{group_of(code)}"] += number
    return {topic: dict(own) for topic, own in numbers.items()}
