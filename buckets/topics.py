"""The topics: their figures, and what is done with a whole topic."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from buckets.errors import JobQueueError, Refused
from buckets.job import LIVE
from buckets.pool import Pool
from buckets.shards import MOST

# The ranges of the due-time histogram: their names and upper ends in s.
RANGES = (
    ("under_1m", 60),
    ("under_10m", 600),
    ("under_30m", 1800),
    ("under_1h", 3600),
    ("under_6h", 21_600),
    ("under_1d", 86_400),
    ("under_7d", 604_800),
    ("under_30d", 2_592_000),
    ("over_30d", None),
)


@dataclass(slots=True)
class Stats:
    """Counts by state, totals ever, the age of the oldest ready job in ms (None: none is ready, or not known
    behind stale entries), and pending jobs by the range of their due time, to the minute or hour."""

    counts: dict[str, int]
    totals: dict[str, int]
    oldest_ready_ms: int | None
    due: dict[str, int]


class Topics:
    """What a namespace knows of its topics."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def kick(self, topic: str, count: int) -> int:
        """Up to `count` dead letters of a topic are ready again, those first that died first; how many."""
        kicked = 0
        for keys in self._pool.keys:
            while kicked < count:
                ids = await self._pool.redis.read("ZRANGE", keys.dead(topic), 0, min(count - kicked, MOST) - 1)
                if not ids:
                    break
                results = await self._pool.kick([job_id.decode() for job_id in ids], topic)
                kicked += sum(result == "ready" for result in results)
                trouble = [
                    each for each in results if isinstance(each, JobQueueError) and not isinstance(each, Refused)
                ]
                if trouble and kicked:
                    return kicked
                if trouble:
                    raise trouble[0]
        return kicked

    async def stats(self, topic: str | None = None) -> Stats:
        """The figures of one topic, or of all together."""
        counts: dict[str, int] = {}
        due = {name: 0 for name, _ in RANGES}
        ages: list[int] = []
        for shard, keys in enumerate(self._pool.keys):
            topics = [topic] if topic is not None else await self.names(shard)
            for each in topics:
                now, since, *fields = await self._pool.call("stats", shard, now=self._pool.clock.now(), topic=each)
                for name, value in zip(fields[::2], fields[1::2], strict=True):
                    counts[name.decode()] = counts.get(name.decode(), 0) + int(value)
                if since:
                    ages.append(now - since)
                async for bin_ms, number in self._due_bins(keys.due(each)):
                    due[_range_of(bin_ms - now)] += number
        live = [state.word for state in LIVE]
        return Stats(
            counts={word: counts.get(word, 0) for word in live},
            totals={name: counts[name] for name in sorted(counts) if name not in live},
            oldest_ready_ms=max(ages) if ages else None,
            due=due,
        )

    async def names(self, shard: int) -> list[str]:
        """The topics of a shard, the least used first."""
        return [name.decode() for name in await self._pool.redis.read("ZRANGE", self._pool.keys[shard].topics, 0, -1)]

    async def _due_bins(self, key: str) -> AsyncIterator[tuple[int, int]]:
        """The bins of a topic's histogram, as (begin in ms, jobs), read in bounded steps."""
        cursor = b"0"
        while True:
            cursor, fields = await self._pool.redis.read("HSCAN", key, cursor, "COUNT", 1000)
            for name, value in zip(fields[::2], fields[1::2], strict=True):
                yield int(name[1:]) * (3_600_000 if name[:1] == b"h" else 60_000), int(value)
            if cursor == b"0":
                return


def _range_of(ahead_ms: int) -> str:
    for name, end in RANGES:
        if end is None or ahead_ms < end * 1000:
            return name
    raise AssertionError("the last range has no end")
