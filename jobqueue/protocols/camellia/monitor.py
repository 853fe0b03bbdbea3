"""What happened in the last whole minute, as camellia's clients see it.

Minutes are counted from the first request for them until there was no request for ten minutes, because each minute
reads the totals of every topic. The totals are those of the whole namespace; the reads of messages and the lateness of
jobs are only those of this process.
"""

from __future__ import annotations

import asyncio
from asyncio import sleep
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from buckets import Meter
from jobqueue.protocols.camellia.space import Space

_MINUTE_S = 60.0
_IDLE_S = 600.0

Shown = dict[str, Any]
Totals = Mapping[str, Mapping[str, int]]
"""For each topic, its totals by name."""


@dataclass(slots=True)
class Gap:
    """How late some jobs of a topic were, in us."""

    count: int = 0
    sum: int = 0
    longest: int = 0

    def add(self, late_us: int, jobs: int = 1) -> None:
        self.count += jobs
        self.sum += late_us * jobs
        self.longest = max(self.longest, late_us)

    def shown(self, topic: str) -> Shown:
        return {
            "topic": topic,
            "count": self.count,
            "avg": self.sum / self.count / 1000,
            "max": -(-self.longest // 1000),
        }


class Seen(Meter):
    """What this process saw since a minute began."""

    def __init__(self) -> None:
        self.gets: Counter[str] = Counter()
        self.pulled: defaultdict[str, Gap] = defaultdict(Gap)
        self.ready: defaultdict[str, Gap] = defaultdict(Gap)

    def promoted(self, topic: str, late_us: int, jobs: int) -> None:
        self.ready[topic].add(late_us, jobs)

    def delivered(self, topic: str, late_us: Sequence[int]) -> None:
        for late in late_us:
            self.pulled[topic].add(late)


@dataclass(slots=True)
class Minute:
    """The rows of a minute."""

    requests: list[Shown] = field(default_factory=list)
    pulled: list[Shown] = field(default_factory=list)
    ready: list[Shown] = field(default_factory=list)

    def only(self, topics: Container[str]) -> Minute:
        """The rows of some topics, given by the names that clients use."""
        parts = (self.requests, self.pulled, self.ready)
        return Minute(*([row for row in part if row["topic"] in topics] for part in parts))


class Monitor:
    """Counts the minutes of the topics below a prefix. `read`: reads their totals, or returns None if they cannot be
    read. `ears`: the meters that hear of the engine's work in this process."""

    def __init__(self, space: Space, read: Callable[[], Awaitable[Totals | None]], ears: list[Meter]) -> None:
        self._space = space
        self._read = read
        self._ears = ears
        self._seen = Seen()
        self._totals: Totals | None = None
        self._last = Minute()
        self._asked = 0.0
        self._task: asyncio.Task[None] | None = None

    def last(self) -> Minute:
        """The last whole minute, or an empty one until the first minute ends."""
        self._asked = asyncio.get_running_loop().time()
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return self._last

    def count_get(self, topic: str) -> None:
        """A message of a topic was read."""
        if self._task:
            self._seen.gets[topic] += 1

    def stop(self) -> None:
        """Stop counting."""
        if self._task:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        self._totals = await self._read()
        self._begin()
        try:
            while asyncio.get_running_loop().time() - self._asked < _IDLE_S:
                await sleep(_MINUTE_S)
                await self.tick()
        finally:
            self._ears.remove(self._seen)
            self._last, self._task = Minute(), None

    def _begin(self) -> None:
        self._seen = Seen()
        self._ears.append(self._seen)

    async def tick(self) -> None:
        """A minute ends, and the next begins."""
        totals, before, seen = await self._read(), self._totals, self._seen
        self._totals = totals
        self._ears.remove(seen)
        self._begin()
        self._last = self._minute(before, totals, seen)

    def _minute(self, before: Totals | None, totals: Totals | None, seen: Seen) -> Minute:
        known = totals if before is not None and totals is not None else {}
        topics = filter(self._is_below, sorted({*known, *seen.gets, *seen.ready}))
        rows = [self._requests(topic, (before or {}).get(topic, {}), known.get(topic, {}), seen) for topic in topics]
        return Minute(
            [row for row in rows if any(number for name, number in row.items() if name != "topic")],
            self._gaps(seen.pulled),
            self._gaps(seen.ready),
        )

    def _requests(self, topic: str, before: Mapping[str, int], after: Mapping[str, int], seen: Seen) -> Shown:
        grown = Counter({name: max(number - before.get(name, 0), 0) for name, number in after.items()})
        return {
            "topic": self._space.their_topic(topic),
            "sendMsg": grown["created"] + grown["replaced"],
            "pullMsg": grown["delivered"],
            "deleteMsg": grown["deleted"],
            "ackMsg": grown["finished"],
            "getMsg": seen.gets[topic],
            "triggerMsgReady": seen.ready[topic].count if topic in seen.ready else 0,
            "triggerMsgEndLife": sum(number for name, number in grown.items() if name.startswith("died")),
            "triggerMsgTimeout": grown["redelivered"],
        }

    def _gaps(self, gaps: Mapping[str, Gap]) -> list[Shown]:
        return [gaps[topic].shown(self._space.their_topic(topic)) for topic in sorted(gaps) if self._is_below(topic)]

    def _is_below(self, topic: str) -> bool:
        return topic.startswith(self._space.prefix)
