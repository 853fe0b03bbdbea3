"""Figures of the namespace: what all instances counted, minute by minute, kept in Redis for some hours.

Each process adds what it counted from time to time; Redis's clock decides on the minute. Those of a topic are kept for
two hours, those of all topics together for as long as the caller says. What the numbers are called is the caller's
business; short names are better, as each is stored for every minute.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping

from buckets.scripts import Value
from buckets.shards import Shards

ALL = ""
"""In place of a topic: all topics together."""
MINUTE_MS = 60_000
_HOUR_MS = 60 * MINUTE_MS
_TOPIC_HOURS = 2
_MOST_NUMBERS = 500  # that a script adds: less than a millisecond of Redis
_PAGE = 20  # minutes that a script reads, likewise


class Figures:
    """The figures of one namespace. `hours`: for how long they are kept; `most_topics`: how many topics have their own
    at a time, the first that come."""

    def __init__(self, shards: Shards, hours: int, most_topics: int) -> None:
        self._shards = shards
        self.most_topics = most_topics
        self.hours = hours
        """For how many hours those of all topics together are kept."""
        self.topic_hours = min(hours, _TOPIC_HOURS)
        """For how many hours those of a topic are kept."""

    async def leaves_out(self, topic: str) -> bool:
        """Whether a topic has no figures because others came first."""
        key = self._shards.keys[0].figured
        read = self._shards.redis.read
        return await read("ZSCORE", key, topic) is None and await read("ZCARD", key) >= self.most_topics

    async def now_ms(self) -> int:
        """The time by which minutes are told, in ms since the epoch."""
        return await self._shards.now_ms()

    async def add(self, counted: Mapping[str, Mapping[str, int]]) -> None:
        """Add what was counted, by topic, to the current minute. Raises NoRoom, Unavailable: then nothing was added, or
        perhaps some."""
        for part in _parts(counted):
            await self._shards.call(
                "add_figures",
                0,
                part,
                now=self._shards.clock.now(),
                kept=self.hours * _HOUR_MS,
                kept_by_topic=self.topic_hours * _HOUR_MS,
                most=self.most_topics,
            )

    async def read(self, topic: str, first: int, last: int) -> AsyncIterator[tuple[int, dict[str, int]]]:
        """The numbers of each minute since the epoch from the first to the last one, in this order, without those in
        which nothing was counted."""
        for at in range(first, last + 1, _PAGE):
            reply = await self._shards.call("read_figures", 0, topic=topic, first=at, last=min(at + _PAGE - 1, last))
            for minute, flat in zip(reply[::2], reply[1::2], strict=True):
                pairs = zip(flat[::2], flat[1::2], strict=True)
                yield minute, {name.decode(): int(number) for name, number in pairs if number.isdigit()}


def _parts(counted: Mapping[str, Mapping[str, int]]) -> Iterator[list[Value]]:
    """What one script may add; mostly that is all."""
    part: list[Value] = []
    for topic, numbers in counted.items():
        if part and len(part) + 2 * len(numbers) > 2 * _MOST_NUMBERS:
            yield part
            part = []
        part += (topic, len(numbers))
        for name, number in numbers.items():
            part += (name, number)
    if part:
        yield part
