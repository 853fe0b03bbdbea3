"""The forecast of topics: how many delayed jobs fall due when, by the histograms that the scripts keep."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain, compress, zip_longest

from buckets.topics.topics import AT_ONCE, Bin, Topics, bin_of, numbers_in
from buckets.topics.within import reaches

MOST_TOPICS = 2000
_MINUTE_MS, _HOUR_MS = 60_000, 3_600_000
_NAMED = 300  # fields that are read by their names; where there are more, all are
_SMALL = 512  # fields of a hash that Redis goes through from its front for each name (hash-max-listpack-entries)
_OVERDUE_MS = _HOUR_MS  # jobs that are overdue for longer are found by reading all fields, too


@dataclass(slots=True)
class Forecast:
    """What falls due: jobs by bin, exact, and by topic; those of later bins; and how many topics were added up and left
    out."""

    bins: Counter[Bin] = field(default_factory=Counter)
    by_topic: Counter[str] = field(default_factory=Counter)
    later: int = 0
    topics: int = 0
    left_out: int = 0


async def read_forecast(topics: Topics, topic: str | None, end_ms: int, within: str = "") -> Forecast:
    """The forecast of a topic, or of all that are within (see within.py), until a time (ms since the epoch). Jobs in
    back-off are in it; leases, and ready jobs with a ttl, are not. Without a topic, the most recently used ones are
    added up, and the others are left out."""
    shards = range(len(topics.pool.keys))
    names = [topic] if topic else await _names(topics, within)
    forecast = Forecast(topics=len(names[:MOST_TOPICS]), left_out=len(names[MOST_TOPICS:]))
    homes = [(shard, name) for name in names[:MOST_TOPICS] for shard in shards]
    are_asked, sums = _AreAsked(end_ms), Counter[bytes]()
    named = await _named(topics, end_ms)
    some = max(AT_ONCE, len(shards))
    for at in range(0, len(homes), some):
        await asyncio.gather(*(_add(forecast, sums, are_asked, topics, named, *home) for home in homes[at : at + some]))
    for name, jobs in sums.items():
        if are_asked[name]:
            forecast.bins[bin_of(name)] += jobs
        else:
            forecast.later += jobs
    return forecast


class _AreAsked(dict[bytes, bool]):
    """Whether bins begin before a time (ms since the epoch), by the names of their fields; each name is read once."""

    def __init__(self, end_ms: int) -> None:
        self._end_ms = end_ms

    def __missing__(self, name: bytes) -> bool:
        found = self[name] = bin_of(name).begin < self._end_ms
        return found


async def _names(topics: Topics, within: str) -> list[str]:
    """All topics within, the most recently used of each shard first."""
    by_shard = await asyncio.gather(*map(topics.names, range(len(topics.pool.keys))))
    ranked: Iterable[str | None] = chain.from_iterable(zip_longest(*map(reversed, by_shard)))
    return [name for name in dict.fromkeys(ranked) if name is not None and reaches(within, name)]


async def _named(topics: Topics, end_ms: int) -> list[bytes]:
    """The names of all bins with jobs that are due before a time, where these are few and none of the jobs is overdue
    for long: a forecast of the next hour reads a tenth of what is there. Else empty."""
    begin_ms = await topics.pool.now_ms() - _OVERDUE_MS
    widths = ((b"m%d", _MINUTE_MS), (b"h%d", _HOUR_MS))
    names = [form % bin_ for form, width in widths for bin_ in range(begin_ms // width, -(-end_ms // width))]
    return names if len(names) <= _NAMED and not await topics.has_entries_before(begin_ms) else []


async def _add(
    forecast: Forecast,
    sums: Counter[bytes],
    are_asked: _AreAsked,
    topics: Topics,
    named: Sequence[bytes],
    shard: int,
    topic: str,
) -> None:
    if named and await topics.due_size(shard, topic) > _SMALL:
        fields, delayed = await topics.due_named(shard, topic, named)
        _count(forecast, sums, are_asked, topic, [*fields], [*fields.values()])
        total = sum(numbers_in(fields.values()))
        forecast.later += max(delayed - total, 0)  # jobs may have moved between the two reads
        return
    async for names, values in topics.due_fields(shard, topic):
        _count(forecast, sums, are_asked, topic, names, values)


def _count(
    forecast: Forecast,
    sums: Counter[bytes],
    are_asked: _AreAsked,
    topic: str,
    names: Sequence[bytes],
    values: Sequence[bytes],
) -> None:
    """Add up the fields of a topic. A thousand topics have a million, so the loop does no more than it must."""
    numbers = numbers_in(values)
    for name, jobs in zip(names, numbers, strict=True):
        sums[name] += jobs
    if asked := sum(compress(numbers, map(are_asked.__getitem__, names))):
        forecast.by_topic[topic] += asked
