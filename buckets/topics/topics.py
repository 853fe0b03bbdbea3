"""Topics: their figures, and the operations on a whole topic."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeVar

from buckets.errors import JobQueueError
from buckets.job import LIVE, Job, State
from buckets.keys import shard_of
from buckets.pool.pool import Pool
from buckets.scripts import Value
from buckets.shards import MOST
from buckets.topics.within import reaches

_MINUTE_MS, _HOUR_MS = 60_000, 3_600_000  # widths of the bins in a histogram
_WHOLE = 4000  # the most fields of a histogram that are read at once: 0.4 ms of Redis
_FEW = 100  # the most bins of a histogram that is read together with those of other topics
_PAGE = 100  # topics, or dead letters, per step
AT_ONCE = 10  # histograms read at once: each may take a millisecond of the process
_FORGOTTEN = 50  # topics per script; each has 13 keys
_TRUSTED_S = 10.0  # how long a topic counts as existing, for the answer to an empty pop of many shards
_MOST_TRUSTED = 10_000
_MOST_BINS = 10_000  # remembered by the names of their fields: a day of minutes and a year of hours

T = TypeVar("T")

# The ranges of the due-time histogram: their names and upper bounds in s.
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
_RANGES = tuple(name for name, _ in RANGES)
_LIVE = tuple(state.word for state in LIVE)
_BLOCKED = "blocked"  # ready jobs that wait for their keys, which are not counted as ready in Redis
_COUNTED = (*_LIVE, _BLOCKED)
_ENDS_MS = [end * 1000 for _, end in RANGES if end is not None]


class Bin(NamedTuple):
    """A span of time in a histogram: its beginning (ms since the epoch) and its width (ms)."""

    begin: int
    width: int


@dataclass(slots=True)
class Stats:
    """Counts by state, totals since the topic began, the age of the oldest ready job in ms (None if none is ready, or
    if it is hidden behind stale entries), and pending jobs by the range of their due time, to the minute or hour."""

    counts: dict[str, int]
    totals: dict[str, int]
    oldest_ready_ms: int | None
    due: dict[str, int]
    blocked: int = 0
    """How many of the ready jobs wait for their keys."""
    waits_ms: list[int] = field(default_factory=list)
    """How long the first ready jobs have waited; empty unless requested."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic's name, its jobs by state, how long its oldest ready job has waited in ms (as in `Stats`), and the end of
    its pause (ms since the epoch; 0 if only a resume ends it; None if it is not paused)."""

    name: str
    counts: dict[str, int]
    oldest_ready_ms: int | None
    paused_until: int | None
    blocked: int = 0
    """How many of its ready jobs wait for their keys."""


@dataclass(frozen=True, slots=True)
class TopicStatus:
    """For some topics: whether any of them exists, and the paused ones with the end of the pause, as in
    `Topic.paused_until`."""

    known: bool
    paused: dict[str, int]


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long (ms) and how many dead letters of a topic are kept. `most`: 0 for any number."""

    age_ms: int
    most: int = 0


class Topics:
    """The topics of a namespace."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self._existed: dict[str, float] = {}  # by topic: when the topic was last seen to exist, by the loop's time

    async def _read(self, empty: Any, *command: Value) -> Any:
        """Read an index. Returns `empty` if another program's data is under its key, until a move or `fsck` sets the
        data aside."""
        try:
            return await self.pool.redis.read(*command)
        except JobQueueError as error:
            if "WRONGTYPE" not in error.message:
                raise
            return empty

    async def kick(self, topic: str, count: int) -> int:
        """Make up to `count` dead letters of a topic ready again, the oldest of each shard first; returns how many."""
        kicked = 0
        while kicked < count:
            wanted, work = count - kicked, []
            pages = await self._in_all(partial(self._first_dead, topic, wanted))
            for shard, ids in enumerate(pages):
                if ids[:wanted]:
                    work.append(self._kick(shard, topic, ids[:wanted]))
                    wanted -= len(ids[:wanted])
            results = await asyncio.gather(*work, return_exceptions=True)
            kicked += sum(result for result in results if isinstance(result, int))
            failed = next((result for result in results if isinstance(result, BaseException)), None)
            if failed and not kicked:
                raise failed
            if failed or not work:
                break
        return kicked

    async def _in_all(self, ask: Callable[[int], Awaitable[T]]) -> list[T]:
        """The answers of all shards, asked concurrently."""
        return await asyncio.gather(*map(ask, range(len(self.pool.keys))))

    async def _first_dead(self, topic: str, count: int, shard: int) -> list[bytes]:
        key = self.pool.keys[shard].dead(topic)
        ids: list[bytes] = await self.pool.redis.read("ZRANGE", key, 0, min(count, MOST) - 1)
        return ids

    async def oldest_deaths(self, topics: Sequence[str]) -> dict[str, int]:
        """When the oldest dead letter of each topic died, in ms since the epoch; a topic without one is left out."""
        found = await asyncio.gather(*map(self._oldest_death, topics))
        return {topic: died for topic, died in zip(topics, found, strict=True) if died is not None}

    async def _oldest_death(self, topic: str) -> int | None:
        heads = await asyncio.gather(
            *(self._read([], "ZRANGE", keys.dead(topic), 0, 0, "WITHSCORES") for keys in self.pool.keys)
        )
        return min((int(float(head[1])) for head in heads if head), default=None)

    async def newest_dead(self, topic: str) -> Job | None:
        """The dead letter that died last, or None if there is none or it was kicked or deleted meanwhile."""
        ends = await self._in_all(
            lambda shard: self._read([], "ZRANGE", self.pool.keys[shard].dead(topic), 0, 0, "REV", "WITHSCORES")
        )
        deaths = [(float(end[1]), end[0].decode("utf-8", "replace")) for end in ends if end]
        job = await self.pool.get(max(deaths)[1]) if deaths else None
        return job if job and job.state is State.DEAD else None

    async def _kick(self, shard: int, topic: str, ids: list[bytes]) -> int:
        """Kick listed dead letters of a shard; the script removes entries from the list that are not dead letters."""
        results = await self.pool.call("kick", shard, ids, now=self.pool.clock.now(), topic=topic, within="")
        self.pool.ready_shards.stir_topic(shard, topic)
        kicked: int = results.count(b"ready")
        return kicked

    async def pause(self, topic: str, span_ms: int | None = None) -> int:
        """Pause a topic, so that its pops find nothing, for `span_ms` or until it is resumed. Returns the end of the
        pause in ms since the epoch, or 0 if only a resume ends it."""
        span: Value = "" if span_ms is None else span_ms
        now = self.pool.clock.now()
        until: list[int] = await self._in_all(
            lambda shard: self.pool.call("pause", shard, now=now, topic=topic, span=span)
        )
        return max(until)

    async def resume(self, topic: str) -> bool:
        """End the pause of a topic; returns whether it was paused."""
        now = self.pool.clock.now()
        was = await self._in_all(lambda shard: self.pool.call("resume", shard, now=now, topic=topic))
        for shard in range(len(was)):
            self.pool.ready_shards.stir_topic(shard, topic)
        return any(was)

    def has(self, shard: int, cursor: int) -> bool:
        """Whether a page may begin at this shard and cursor."""
        return shard in range(len(self.pool.keys)) and 0 <= cursor < 1 << 64

    async def page(
        self, pattern: str = "*", shard: int = 0, cursor: int = 0, *, within: str = ""
    ) -> tuple[list[Topic], int, int]:
        """Some topics whose names match a pattern with `*` and `?`, and the shard and cursor of the next page (0 and 0
        if this was the last). A topic that is in several shards is listed once. A page may be empty before the end.
        With `within`, only topics that a caller may reach are listed (see within.py)."""
        redis, keys = self.pool.redis, self.pool.keys
        raw_cursor, flat = await redis.read("ZSCAN", keys[shard].topics, cursor, "MATCH", pattern, "COUNT", _PAGE)
        names = [name for name in _words(flat[::2]) if reaches(within, name)]
        if shard:
            known = await asyncio.gather(*(self._is_in(name, shard) for name in names))
            names = [name for name, before in zip(names, known, strict=True) if not before]
        topics = await self._told(names)
        if raw_cursor != b"0":
            return topics, shard, int(raw_cursor)
        return topics, (shard + 1) % len(keys), 0

    async def _is_in(self, name: str, shards: int) -> bool:
        """Whether one of the first `shards` shards has the topic."""
        keys = self.pool.keys[:shards]
        scores = await asyncio.gather(*(self._read(None, "ZSCORE", each.topics, name) for each in keys))
        return any(score is not None for score in scores)

    async def counts(self, name: str) -> dict[str, int]:
        """How many jobs a topic has, by state; an unknown topic has none."""
        by_shard = await self._in_all(partial(self.counts_in, name=name))
        return {state.word: sum(counts[state] for counts in by_shard) for state in LIVE}

    async def counts_in(self, shard: int, name: str) -> dict[State, int]:
        """As `counts`, for one shard."""
        key = self.pool.keys[shard].counts(name)
        numbers = await self._read([None] * len(_COUNTED), "HMGET", key, *_COUNTED)
        counts = dict(zip(_COUNTED, map(number_in, numbers), strict=True))
        _blocked_in(counts)
        return {state: counts[state.word] for state in LIVE}

    async def _told(self, names: Sequence[str]) -> list[Topic]:
        if not names:
            return []
        pauses = await self.pauses(names)
        by_shard = await self._in_all(lambda shard: self.pool.call("count_topics", shard, names))
        numbers = [sum(map(number_in, each)) for each in zip(*by_shard, strict=True)]
        rows = [numbers[at : at + len(_COUNTED)] for at in range(0, len(numbers), len(_COUNTED))]
        counts = {name: dict(zip(_COUNTED, row, strict=True)) for name, row in zip(names, rows, strict=True)}
        blocked = {name: _blocked_in(each) for name, each in counts.items()}
        oldest = await self._oldest_ready_ms([name for name in names if counts[name][State.READY.word]])
        return [Topic(name, counts[name], oldest.get(name), pauses.get(name), blocked[name]) for name in names]

    async def _oldest_ready_ms(self, names: Sequence[str]) -> dict[str, int]:
        """How long the oldest ready job of each topic has waited; topics for which that is unknown are left out."""
        if not names:
            return {}
        found: dict[str, int] = {}
        for now_ms, *rows in await self._in_all(lambda shard: self._rows(shard, names)):
            for name, row in zip(names, rows, strict=True):
                if row and row[0]:
                    found[name] = max(now_ms - row[0], found.get(name, 0))
        return found

    async def _rows(
        self, shard: int, names: Sequence[str], *, adds_up: bool = False, bins: int = -1, waits: int = 0
    ) -> Any:
        """The reply of the script `stats`. `bins`: the most bins of a histogram that is read, or -1 for no histograms.
        `waits`: for how many of the first ready jobs to return since when they have been ready."""
        now = self.pool.clock.now()
        return await self.pool.call("stats", shard, names, now=now, sum=int(adds_up), whole_bins=bins, first=waits)

    async def paused_until(self, name: str, near: str | None = None) -> int | None:
        """The end of a topic's pause, as in `Topic.paused_until`. `near`: the id of a job whose shard is asked; all
        shards have the pause."""
        shard = 0 if near is None else shard_of(near, len(self.pool.keys))
        return (await self.pauses([name], shard)).get(name)

    async def pauses(self, names: Sequence[str], shard: int = 0) -> dict[str, int]:
        """The topics among these that are paused, with the end of the pause as in `Topic.paused_until`."""
        if not names:
            return {}
        keys = self.pool.keys[shard]
        raws = await self.pool.redis.read("MGET", *map(keys.paused, names))  # None for a key that is not a string
        found = zip(names, raws, strict=True)
        ends = {name: int(raw) for name, raw in found if raw is not None and raw.isdigit() and len(raw) < 16}
        now = await self.pool.now_ms() if any(ends.values()) else 0
        return {name: until for name, until in ends.items() if until == 0 or until > now}

    async def know(self, *names: str) -> bool:
        """Whether any of these topics exists, even if it is empty."""
        scores = await self._in_all(partial(self._scores, names))
        return any(score is not None for each in scores for score in each)

    async def _scores(self, names: Sequence[str], shard: int) -> list[Any]:
        found: list[Any] = await self._read([], "ZMSCORE", self.pool.keys[shard].topics, *names)
        return found

    async def status(self, names: Sequence[str]) -> TopicStatus:
        """Why a pop of these topics may have found no job, even if some are ready. Like the pop, this never fails:
        shards that are away are left out, and the result makes no claims about unreadable data."""
        answering = [shard for shard in range(len(self.pool.keys)) if not self.pool.is_away(shard)]
        try:
            pauses = self.pauses(names, answering[0] if answering else 0)
            return TopicStatus(*await asyncio.gather(self._may_exist(names, answering), pauses))
        except JobQueueError:
            return TopicStatus(True, {})

    async def _may_exist(self, names: Sequence[str], answering: Sequence[int]) -> bool:
        """Whether any of these topics exists, or did seconds ago, as far as the answering shards know: an empty pop of
        many shards should not ask all of them each time."""
        shards, now = len(self.pool.keys), asyncio.get_running_loop().time()
        if shards > 1 and any(now - self._existed.get(name, -_TRUSTED_S) < _TRUSTED_S for name in names):
            return True
        seen = await asyncio.gather(*(self._scores(names, shard) for shard in answering))
        exist = {name for scores in seen for name, score in zip(names, scores, strict=False) if score is not None}
        if len(self._existed) > _MOST_TRUSTED:
            self._existed.clear()
        self._existed.update(dict.fromkeys(exist, now))
        return bool(exist) or len(answering) < shards

    async def bound(self, shard: int, bounds_of: Callable[[str], Bounds]) -> int:
        """Delete the dead letters of a shard that exceed the bounds of their topics, the oldest first; returns how many
        entries were processed."""
        processed = 0
        async for names in self._scan(shard):
            bounds = [(name, bounds_of(name)) for name in names]
            pairs: list[Value] = [
                value for name, each in bounds for value in (name, each.age_ms, -(-each.most // len(self.pool.keys)))
            ]
            some = 1
            while some > 0:
                some = await self.pool.call("trim_dead", shard, pairs, now=self.pool.clock.now(), page=_PAGE)
                processed += some
        return processed

    async def _scan(self, shard: int) -> AsyncIterator[dict[str, float]]:
        """The topics of a shard with the time of their last use (ms since the epoch), some at a time."""
        cursor, key = b"0", self.pool.keys[shard].topics
        while True:
            cursor, flat = await self._read((b"0", []), "ZSCAN", key, cursor, "COUNT", _PAGE)
            yield dict(zip(_words(flat[::2]), map(float, flat[1::2]), strict=True))
            if cursor == b"0":
                return

    async def forget(self, shard: int, idle_ms: int) -> int:
        """Forget the topics that have had no job for `idle_ms`; returns how many."""
        forgotten = 0
        known: int = await self._read(0, "ZCARD", self.pool.keys[shard].topics)
        now = self.pool.clock.now()
        for _ in range(0, known, _FORGOTTEN):  # looks at each topic once: the script moves topics in use to the end
            looked, gone = await self.pool.call("forget", shard, now=now, idle=idle_ms, page=_FORGOTTEN)
            forgotten += gone
            if looked < _FORGOTTEN:
                break
        return forgotten

    async def stats(self, topic: str | None = None, *, prefix: str = "", within: str = "", waits: int = 0) -> Stats:
        """The figures of one topic, or the sums over all topics that begin with the prefix and are within (see
        within.py). `waits`: for how many of the first ready jobs in each shard to return how long they have waited."""
        stats = _no_figures()
        if topic is None:
            by_shard = [
                [name for name in names if name.startswith(prefix) and reaches(within, name)]
                for names in await self._in_all(self.names)
            ]
        else:
            by_shard = [[topic]] * len(self.pool.keys)

        async def add(shard: int) -> None:
            for some in _batched(by_shard[shard], _PAGE):
                now, row = await self._rows(shard, some, adds_up=True, bins=_FEW, waits=waits)
                await self._add_row(stats, shard, now, row)

        await self._in_all(add)
        return _sorted(stats)

    async def each(self, prefix: str, within: str = "", waits: int = 0) -> dict[str, Stats]:
        """The figures of each topic that begins with the prefix and is within. `waits`: as in `stats`; if it is not 0,
        due times are left out."""
        figures: dict[str, Stats] = {}

        async def add(shard: int) -> None:
            names = [name for name in await self.names(shard) if name.startswith(prefix) and reaches(within, name)]
            for some in _batched(names, _PAGE):
                now, *rows = await self._rows(shard, some, bins=-1 if waits else _FEW, waits=waits)
                for name, row in zip(some, rows, strict=True):
                    stats = figures.setdefault(name, _no_figures())
                    if row:
                        await self._add_row(stats, shard, now, row)

        await self._in_all(add)
        return {name: _sorted(stats) for name, stats in figures.items()}

    async def _add_row(self, stats: Stats, shard: int, now: int, row: Any) -> None:
        since, counts, bins, large, times = row
        stats.waits_ms += [max(now - time, 0) for time in times]
        for name, value in zip(counts[::2], counts[1::2], strict=True):
            word = name.decode("utf-8", "replace")
            stats.counts[word] = stats.counts.get(word, 0) + number_in(value)
        if since:
            stats.oldest_ready_ms = max(now - since, stats.oldest_ready_ms or 0)
        for name, value in zip(bins[::2], bins[1::2], strict=True):
            stats.due[_range_of(bin_of(name).begin - now)] += number_in(value)
        for at in range(0, len(large), AT_ONCE):
            some = _words(large[at : at + AT_ONCE])
            for found in await asyncio.gather(*(self.bins(shard, topic) for topic in some)):
                for each, number in found:
                    stats.due[_range_of(each.begin - now)] += number

    async def _homes(self) -> list[tuple[int, str]]:
        """Each shard with each of its topics, the most recently used of a shard first."""
        names = await self._in_all(self.names)
        return [(shard, name) for shard, some in enumerate(names) for name in reversed(some)]

    async def beginning(self, prefix: str) -> list[str]:
        """The topics whose names begin with a prefix, in no particular order."""
        return list({name for _, name in await self._homes() if name.startswith(prefix)})

    async def names(self, shard: int) -> list[str]:
        """The topics of a shard, the least recently used first."""
        used: dict[str, float] = {}
        async for some in self._scan(shard):  # 100,000 at once would hold Redis for 10 ms
            used |= some
        return sorted(used, key=lambda name: (used[name], name))

    async def bins(self, shard: int, topic: str) -> list[tuple[Bin, int]]:
        """The bins of a topic's histogram in a shard and the number of jobs in each, in no particular order; read in
        bounded steps."""
        return [
            each
            async for names, values in self.due_fields(shard, topic)
            for each in zip(map(bin_of, names), numbers_in(values), strict=True)
        ]

    async def due_fields(self, shard: int, topic: str) -> AsyncIterator[tuple[list[bytes], list[bytes]]]:
        """The names and values of the fields of a topic's histogram in a shard, some at a time."""
        cursor, key = b"0", self.pool.keys[shard].due(topic)
        if await self.due_size(shard, topic) <= _WHOLE:  # a scan would take Redis three times as long
            flat = await self._read([], "HGETALL", key)
            yield flat[::2], flat[1::2]
            return
        while True:
            cursor, flat = await self._read((b"0", []), "HSCAN", key, cursor, "COUNT", 1000)
            yield flat[::2], flat[1::2]
            if cursor == b"0":
                return

    async def due_size(self, shard: int, topic: str) -> int:
        """How many bins a topic's histogram has in a shard."""
        size: int = await self._read(0, "HLEN", self.pool.keys[shard].due(topic))
        return size

    async def due_named(
        self, bins: Sequence[bytes], names: Sequence[str], small: int
    ) -> list[tuple[list[int], list[int], int]]:
        """How many delayed jobs of some topics are in certain bins of their histograms: for each shard the jobs in each
        bin, those of each topic, and how many are in other bins. `small`: bins of a histogram that is read whole."""
        rest: list[Value] = [*bins, *names]
        replies = await self._in_all(lambda each: self.pool.call("count_due", each, rest, small=small, asked=len(bins)))
        return [(sums, numbers[::2], sum(numbers[1::2])) for sums, *numbers in replies]

    async def has_entries_before(self, time_ms: int) -> bool:
        """Whether a bucket still has an entry that was due before a time (ms since the epoch)."""

        async def is_earlier(shard: int, bucket: int) -> bool:
            keys = self.pool.keys[shard]
            bounds = await self._read([], "ZRANGE", keys.slices(bucket), 0, 0)
            # A slice moves into the set, so the set is read last.
            for name in (*(f"{keys.slices(bucket)}:".encode() + bound for bound in bounds), keys.bucket(bucket)):
                first = await self._read([], "ZRANGE", name, 0, 0, "WITHSCORES")
                if first and float(first[1]) < time_ms:
                    return True
            return False

        buckets = ((shard, bucket) for shard in range(len(self.pool.keys)) for bucket in range(self.pool.buckets))
        return any(await asyncio.gather(*(is_earlier(*each) for each in buckets)))

    async def figures(self, name_of: Callable[[str], str]) -> dict[str, Stats]:
        """The figures by topic, without due times.

        Topics that get the same name from `name_of`, which is called for the most recently used first, are summed. A
        topic whose figures another program spoilt is left out. Raises Unavailable.
        """
        figures: dict[str, Stats] = {}
        named: list[list[tuple[str, str]]] = [[] for _ in self.pool.keys]
        for shard, name in await self._homes():
            named[shard].append((name_of(name), name))

        async def add(shard: int) -> None:
            for some in _batched(named[shard], _PAGE):
                now, *rows = await self._rows(shard, [name for _, name in some])
                for (name, _), row in zip(some, rows, strict=True):
                    if row and (numbers := _numbers(row[1])) is not None:
                        oldest = now - row[0] if row[0] else None
                        _add_up(figures.setdefault(name, Stats({}, {}, None, {})), numbers, oldest)

        await self._in_all(add)
        return figures


def _numbers(flat: Sequence[bytes]) -> dict[str, int] | None:
    """Counters by their names, or None if another program spoilt one."""
    try:
        return {name.decode(): int(value) for name, value in zip(flat[::2], flat[1::2], strict=True)}
    except ValueError:
        return None


def _batched(names: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Split names into parts of at most `size`."""
    return (names[at : at + size] for at in range(0, len(names), size))


def _no_figures() -> Stats:
    return Stats(counts={}, totals={}, oldest_ready_ms=None, due=dict.fromkeys(_RANGES, 0))


def _blocked_in(counts: dict[str, int]) -> int:
    """Count the blocked jobs as ready ones, as they are for callers; returns how many there are."""
    blocked = counts.pop(_BLOCKED, 0)
    counts[State.READY.word] = counts.get(State.READY.word, 0) + blocked
    return blocked


def _sorted(stats: Stats) -> Stats:
    """Move totals, which were counted among the jobs by state, to where they belong."""
    stats.blocked = _blocked_in(stats.counts)
    stats.totals = {name: number for name, number in sorted(stats.counts.items()) if name not in _LIVE}
    stats.counts = {word: stats.counts.get(word, 0) for word in _LIVE}
    return stats


def _add_up(stats: Stats, numbers: dict[str, int], oldest_ready_ms: int | None) -> None:
    stats.blocked += _blocked_in(numbers)
    for name, number in numbers.items():
        part = stats.counts if name in _LIVE else stats.totals
        part[name] = part.get(name, 0) + number
    if oldest_ready_ms is not None:
        stats.oldest_ready_ms = max(oldest_ready_ms, stats.oldest_ready_ms or 0)


def _words(names: list[bytes]) -> list[str]:
    """Names of topics as text; a name that another program wrote must not hide the others."""
    return [name.decode("utf-8", "replace") for name in names]


@lru_cache(_MOST_BINS)  # most topics have the same bins
def bin_of(name: bytes) -> Bin:
    """The bin whose field in a histogram has this name."""
    width = _HOUR_MS if name[:1] == b"h" else _MINUTE_MS
    return Bin(number_in(name[1:]) * width, width)


def number_in(raw: bytes | None) -> int:
    """A counter's value, or 0 if another program spoilt it, until `fsck` corrects it."""
    return int(raw) if raw and raw.removeprefix(b"-").isdigit() else 0


def numbers_in(raw: Collection[bytes]) -> list[int]:
    """The values of many counters, as `number_in` reads them."""
    try:
        return list(map(int, raw))
    except ValueError:  # another program's data
        return list(map(number_in, raw))


def _range_of(ahead_ms: int) -> str:
    return RANGES[bisect_right(_ENDS_MS, ahead_ms)][0]
