"""Figures of the namespace, minute by minute: what all instances counted, and how many delayed jobs fall due at which
time.

Each process adds its counts from time to time; Redis's clock decides on the minute. Redis keeps the figures of a topic
for two hours, and the sums over all topics for as long as the caller says. The caller chooses the names of the numbers;
short names are better, as each is stored for every minute. The forecast comes from the histograms that the scripts
keep.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, compress, zip_longest

from buckets.pages import chunks
from buckets.scripts import Value
from buckets.shards import Shards
from buckets.topics.topics import AT_ONCE, Bin, Topics, bin_of, numbers_in
from buckets.topics.within import reaches

ALL = ""
"""In place of a topic, for all topics together."""
MINUTE_MS = 60_000
_HOUR_MS = 60 * MINUTE_MS
_TOPIC_HOURS = 2
_MOST_NUMBERS = 500  # numbers that a script adds: less than a millisecond of Redis
_PAGE = 20  # minutes that a script reads, in less than a millisecond, too


class Figures:
    """The figures of one namespace. `hours`: how long the sums over all topics are kept; `most_topics`: how many topics
    can have figures of their own at a time, first come, first served."""

    def __init__(self, shards: Shards, hours: int, most_topics: int) -> None:
        self._shards = shards
        self.most_topics = most_topics
        self.hours = hours
        """For how many hours the sums over all topics are kept."""
        self.topic_hours = min(hours, _TOPIC_HOURS)
        """For how many hours the figures of a topic are kept."""

    async def leaves_out(self, topic: str) -> bool:
        """Whether a topic has no figures because others came first."""
        key = self._shards.keys[0].figured
        read = self._shards.redis.read
        return await read("ZSCORE", key, topic) is None and await read("ZCARD", key) >= self.most_topics

    async def now_ms(self) -> int:
        """The time that decides on the current minute, in ms since the epoch."""
        return await self._shards.now_ms()

    async def add(self, counted: Mapping[str, Mapping[str, int]]) -> None:
        """Add counts, by topic, to the current minute. Raises NoRoom or Unavailable, after which none, some or all may
        have been added."""
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
        """The numbers of each minute, in minutes since the epoch from `first` to `last`, in order, without minutes in
        which nothing was counted."""
        for at in range(first, last + 1, _PAGE):
            reply = await self._shards.call("read_figures", 0, topic=topic, first=at, last=min(at + _PAGE - 1, last))
            for minute, flat in zip(reply[::2], reply[1::2], strict=True):
                pairs = zip(flat[::2], flat[1::2], strict=True)
                yield minute, {name.decode(): int(number) for name, number in pairs if number.isdigit()}


def _parts(counted: Mapping[str, Mapping[str, int]]) -> Iterator[list[Value]]:
    """Split counts into the parts that one script may add; usually there is only one part."""
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


MOST_TOPICS = 2000
_NAMED = 300  # the most fields that are read by their names; beyond that, all fields are read
_SMALL = 512  # the most fields of a hash that Redis searches from the front for each name (hash-max-listpack-entries)
_MOST_FIELDS = 2_000  # the most fields that a script reads by their names: a millisecond of Redis
_OVERDUE_MS = _HOUR_MS  # jobs that are overdue for longer are found only by reading all fields


@dataclass(slots=True)
class Forecast:
    """The jobs that fall due: by bin, exact, and by topic. `later`: jobs in later bins. `topics`, `left_out`: how many
    topics were added up and left out."""

    bins: Counter[Bin] = field(default_factory=Counter)
    by_topic: Counter[str] = field(default_factory=Counter)
    later: int = 0
    topics: int = 0
    left_out: int = 0


async def read_forecast(topics: Topics, topic: str | None, end_ms: int, within: str = "") -> Forecast:
    """The forecast of a topic, or of all topics that are within (see within.py), until a time (ms since the epoch). It
    includes jobs in back-off, but not leases or ready jobs with a ttl. Without a topic, the most recently used topics
    are added up, and the others are left out."""
    known = [topic] if topic else await _names(topics, within)
    names = known[:MOST_TOPICS]
    forecast = Forecast(topics=len(names), left_out=len(known) - len(names))
    named = await _named(topics, end_ms)
    if named:
        await _add_named(forecast, topics, named, names)
    else:
        await _add_all(forecast, topics, end_ms, names)
    return forecast


async def _add_named(forecast: Forecast, topics: Topics, named: Sequence[bytes], names: Sequence[str]) -> None:
    """Add up the bins with these names, of so many topics at a time that no script takes long."""
    bins = [bin_of(name) for name in named]
    for some in chunks(names, max(_MOST_FIELDS // len(named), 1)):
        for sums, by_topic, later in await topics.due_named(named, some, _SMALL):
            for each, jobs in zip(bins, sums, strict=True):
                if jobs:
                    forecast.bins[each] += jobs
            forecast.by_topic.update({name: jobs for name, jobs in zip(some, by_topic, strict=True) if jobs})
            forecast.later += later


async def _add_all(forecast: Forecast, topics: Topics, end_ms: int, names: Sequence[str]) -> None:
    """Read whole histograms, and add up the bins that begin before a time."""
    homes = [(shard, name) for name in names for shard in range(len(topics.pool.keys))]
    are_asked, sums = _AreAsked(end_ms), Counter[bytes]()

    async def add(shard: int, topic: str) -> None:
        async for fields, values in topics.due_fields(shard, topic):
            _count(forecast, sums, are_asked, topic, fields, values)

    for some in chunks(homes, max(AT_ONCE, len(topics.pool.keys))):
        await asyncio.gather(*(add(*home) for home in some))
    for name, jobs in sums.items():
        if are_asked[name]:
            forecast.bins[bin_of(name)] += jobs
        else:
            forecast.later += jobs


class _AreAsked(dict[bytes, bool]):
    """Whether bins begin before a time (ms since the epoch), by the names of their fields; each name is parsed once."""

    def __init__(self, end_ms: int) -> None:
        self._end_ms = end_ms

    def __missing__(self, name: bytes) -> bool:
        found = self[name] = bin_of(name).begin < self._end_ms
        return found


async def _names(topics: Topics, within: str) -> list[str]:
    """All topics that are within, the most recently used of each shard first."""
    by_shard = await asyncio.gather(*map(topics.names, range(len(topics.pool.keys))))
    ranked: Iterable[str | None] = chain.from_iterable(zip_longest(*map(reversed, by_shard)))
    return [name for name in dict.fromkeys(ranked) if name is not None and reaches(within, name)]


async def _named(topics: Topics, end_ms: int) -> list[bytes]:
    """The names of all bins that may have jobs due before a time, if the bins are few and no job is overdue for long:
    so a forecast of the next hour reads a tenth of the fields. Otherwise empty."""
    begin_ms = await topics.pool.now_ms() - _OVERDUE_MS
    widths = ((b"m%d", MINUTE_MS), (b"h%d", _HOUR_MS))
    names = [form % bin_ for form, width in widths for bin_ in range(begin_ms // width, -(-end_ms // width))]
    return names if len(names) <= _NAMED and not await topics.has_entries_before(begin_ms) else []


def _count(
    forecast: Forecast,
    sums: Counter[bytes],
    are_asked: _AreAsked,
    topic: str,
    names: Sequence[bytes],
    values: Sequence[bytes],
) -> None:
    """Add up the fields of a topic. A thousand topics have a million fields, so the loop does no more than it must."""
    numbers = numbers_in(values)
    for name, jobs in zip(names, numbers, strict=True):
        sums[name] += jobs
    if asked := sum(compress(numbers, map(are_asked.__getitem__, names))):
        forecast.by_topic[topic] += asked
