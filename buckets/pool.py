"""The job pool: one method a move, and the reads.

Nothing is decided here. A method packs its arguments, calls one script a shard (more for a batch that would hold
Redis too long), and turns the answer into values.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from buckets.clock import Clock
from buckets.errors import JobQueueError, Refused, Unavailable, Unfit
from buckets.job import LIVE, Job, NewJob, unpack
from buckets.keys import NAMESPACE, Keys, shard_of
from buckets.redis import Redis, judge_all
from buckets.scripts import Value

FORMAT = 1
HASH = "crc32"
PAGE = 150  # due entries a script: about 1.5 ms of Redis, a third of what a script may take
_MOST = 200  # jobs of a batch in one script
_MOST_BYTES = 1 << 20  # and their size

T = TypeVar("T")

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


@dataclass(frozen=True, slots=True)
class Added:
    """What became of a job handed in: created, existing or replaced; its state; when it is due (ms)."""

    result: str
    state: str
    due: int


@dataclass(frozen=True, slots=True)
class Moved:
    """A job's new state, and when it is due (ms)."""

    state: str
    due: int


@dataclass(slots=True)
class Popped:
    """Jobs of a pop, and how many ready ones are left in the last topic that it looked into."""

    jobs: list[Job] = field(default_factory=list)
    left: int = 0


@dataclass(slots=True)
class Stats:
    """Counts by state, totals ever, the age of the oldest ready job in ms (None: none is ready, or not known
    behind stale entries), and pending jobs by the range of their due time, to the minute or hour."""

    counts: dict[str, int]
    totals: dict[str, int]
    oldest_ready_ms: int | None
    due: dict[str, int]


def _chunks(items: Iterable[T], id_of: Callable[[T], str], size_of: Callable[[T], int]) -> Iterator[list[T]]:
    """Split a batch so that no script is long and none has the same id twice: each then reads all before it writes."""
    chunk: list[T] = []
    seen: set[str] = set()
    size = 0
    for item in items:
        if chunk and (len(chunk) == _MOST or size > _MOST_BYTES or id_of(item) in seen):
            yield chunk
            chunk, seen, size = [], set(), 0
        chunk.append(item)
        seen.add(id_of(item))
        size += size_of(item)
    if chunk:
        yield chunk


class Pool:
    """The jobs of one namespace. Made by `Pool.open`."""

    def __init__(self, redis: Redis, namespace: str, shards: int, buckets: int, clock: Clock | None = None) -> None:
        self._redis = redis
        self.clock = clock or Clock()
        self.keys = [Keys(namespace, shard) for shard in range(shards)]
        self.buckets = buckets
        self._turn = itertools.count(random.randrange(buckets))  # round robin; each process begins elsewhere
        self._late: set[asyncio.Task[Any]] = set()
        # Two pages at a time keep Redis busy; with one a bucket, everyone else would wait behind eight.
        self._paging = [asyncio.Semaphore(2) for _ in self.keys]

    @classmethod
    async def open(
        cls, redis: Redis, namespace: str = "jq", *, shards: int = 1, buckets: int = 8, clock: Clock | None = None
    ) -> Pool:
        """Found the namespace, or join it: then its own numbers of shards and buckets hold, not the arguments.

        Raises Unfit for a namespace that another version wrote in a way that this one does not know.
        """
        if not NAMESPACE.fullmatch(namespace):
            raise Unfit("a namespace has 1 to 32 characters of A-Z a-z 0-9 . _ -")
        pool = cls(redis, namespace, shards, buckets, clock)
        meta = await pool.found(0)
        shards, buckets = int(meta["shards"]), int(meta["buckets"])
        pool = cls(redis, namespace, shards, buckets, clock)
        for shard in range(1, shards):
            await pool.found(shard)
        return pool

    async def found(self, shard: int) -> dict[str, str]:
        """Write the shard's settings unless it has some; returns those that hold. Raises Unfit."""
        own: dict[str, Value] = {"format": FORMAT, "shards": len(self.keys), "buckets": self.buckets, "hash": HASH}
        fields: list[Value] = [text for pair in own.items() for text in pair]
        reply = await self._call("birth", shard, fields)
        meta = {name.decode(): value.decode() for name, value in zip(reply[::2], reply[1::2], strict=True)}
        if meta.get("format") != str(FORMAT) or meta.get("hash") != HASH or meta.keys() != own.keys():
            raise Unfit(f"{self.keys[shard].meta} was written by another version: {meta}")
        return meta

    async def _call(
        self, script: str, shard: int, rest: Sequence[Value] = (), *, repeat: bool | None = None, **arguments: Value
    ) -> Any:
        keys = self.keys[shard]
        return await self._redis.call(script, rest, repeat=repeat, meta=keys.meta, never=keys.never, **arguments)

    async def _each(
        self,
        script: str,
        items: Sequence[T],
        id_of: Callable[[T], str],
        pack: Callable[[T], tuple[Value, ...]],
        size_of: Callable[[T], int] = lambda item: 0,
        repeat: bool | None = None,
        **arguments: Value,
    ) -> list[Any]:
        """Run a script that takes many jobs over all their shards; the results in the order of the items."""
        results: list[Any] = [None] * len(items)
        away: Unavailable | None = None
        by_shard: dict[int, list[int]] = {}
        for place, item in enumerate(items):
            by_shard.setdefault(shard_of(id_of(item), len(self.keys)), []).append(place)
        for shard, places in by_shard.items():
            for chunk in _chunks(places, lambda place: id_of(items[place]), lambda place: size_of(items[place])):
                rest = [value for place in chunk for value in pack(items[place])]
                if script == "add":
                    arguments["bucket"] = next(self._turn)
                try:
                    if away:
                        raise away
                    reply = judge_all(await self._call(script, shard, rest, repeat=repeat, **arguments))
                except JobQueueError as error:
                    away = error if isinstance(error, Unavailable) else None  # one wait for Redis is enough
                    reply = [error] * len(chunk)
                for place, result in zip(chunk, reply, strict=True):
                    results[place] = result
        return results

    async def add(self, jobs: Sequence[NewJob]) -> list[Added | JobQueueError]:
        """Keep jobs; as if one after the other. Errors stand in the places of their jobs."""
        results = await self._each(
            "add",
            jobs,
            lambda job: job.id,
            lambda job: (job.id, job.if_exists, job.pack()),
            lambda job: len(job.body),
            # Told twice, `reject` would find the job that it made itself, and `replace` might run it twice, as would
            # any that leaves no tombstone.
            repeat=all(job.if_exists == "keep" and job.retention_ms > 0 for job in jobs),
            now=self.clock.now(),
            buckets=self.buckets,
            bucket=0,
        )
        return [
            result if isinstance(result, JobQueueError) else Added(result[0].decode(), result[1].decode(), result[2])
            for result in results
        ]

    async def pop(
        self, topics: Sequence[str], count: int = 1, *, ttr_ms: int | None = None, worker: str = "", room: int = 8 << 20
    ) -> Popped:
        """Reserve up to `count` ready jobs (up to `room` bytes of them, one always) of the topics, tried in order.

        When the caller is cancelled while Redis works on it, what was reserved is given back.
        """
        task = asyncio.ensure_future(self._pop(topics, count, "" if ttr_ms is None else ttr_ms, worker, room))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            late = asyncio.create_task(self._take_back(task))
            self._late.add(late)
            late.add_done_callback(self._late.discard)
            raise

    async def _pop(self, topics: Sequence[str], count: int, ttr: Value, worker: str, room: int) -> Popped:
        popped = Popped()
        first = next(self._turn)
        for turn in range(len(self.keys)):
            shard = (first + turn) % len(self.keys)
            left, more = 0, True
            while more and len(popped.jobs) < count and (room > 0 or not popped.jobs):
                want = min(count - len(popped.jobs), _MOST)
                try:
                    reply = await self._call(
                        "pop",
                        shard,
                        topics,
                        now=self.clock.now(),
                        bucket=first % self.buckets,
                        want=want,
                        room=max(room, 0),
                        always=0 if popped.jobs else 1,
                        ttr=ttr,
                        worker=worker,
                    )
                except JobQueueError:
                    if popped.jobs:
                        return popped  # what the other shards gave is with this worker
                    raise
                left, cut_short, *pairs = reply
                more = bool(cut_short) or len(pairs) == 2 * want
                for job_id, raw in zip(pairs[::2], pairs[1::2], strict=True):
                    popped.jobs.append(unpack(job_id.decode(), raw))
                    room -= len(raw)
            popped.left += left
        return popped

    async def _take_back(self, popping: asyncio.Task[Popped]) -> None:
        await asyncio.wait([popping])
        if not popping.cancelled() and not popping.exception() and popping.result().jobs:
            await self.unpop(popping.result().jobs)

    async def unpop(self, jobs: Sequence[Job]) -> None:
        """Give deliveries that reached nobody back to the front of their lists, their attempts as before.

        A job whose lease is not the newest any more stays as it is. One popped at most once is gone.
        """
        last_first = jobs[::-1]  # each is put before those that came after it, over all scripts of a large batch
        await self._each("unpop", last_first, lambda job: job.id, lambda job: (job.id, job.lease), now=self.clock.now())

    async def finish(self, jobs: Sequence[tuple[str, int | None]]) -> list[str | JobQueueError]:
        """End jobs, given as (id, lease or None); for each `finished`, or NotFound, NotReserved, StaleLease."""
        results = await self._each(
            "finish",
            jobs,
            lambda job: job[0],
            lambda job: (job[0], "" if job[1] is None else job[1]),
            now=self.clock.now(),
        )
        return [result if isinstance(result, JobQueueError) else result.decode() for result in results]

    async def delete(self, ids: Sequence[str]) -> list[str | JobQueueError]:
        """Cancel jobs; for each the state it was in, or NotFound, WrongState."""
        results = await self._each("delete", ids, lambda job_id: job_id, lambda job_id: (job_id,), now=self.clock.now())
        return [result if isinstance(result, JobQueueError) else result.decode() for result in results]

    async def _one(self, script: str, job_id: str, *, repeat: bool | None = None, **arguments: Value) -> Any:
        """Run a script for one job."""
        shard = shard_of(job_id, len(self.keys))
        return await self._call(script, shard, (), repeat=repeat, now=self.clock.now(), id=job_id, **arguments)

    async def touch(self, job_id: str, lease: int | None = None, ttr_ms: int | None = None) -> int:
        """The lease runs anew from now, for `ttr_ms` or as long as before; until when, in ms.

        Raises NotFound, NotReserved, StaleLease.
        """
        until: int = await self._one("touch", job_id, lease=_or_empty(lease), ttr=_or_empty(ttr_ms))
        return until

    async def release(
        self,
        job_id: str,
        lease: int | None = None,
        *,
        delay_ms: int | None = None,
        counts: bool = True,
        reason: str = "",
    ) -> Moved:
        """Give a job back, to its next delivery after `delay_ms` or the next step of its ladder, or to the dead when
        its tries are used up. `counts`: whether this delivery was a try. Raises NotFound, NotReserved, StaleLease."""
        reply = await self._one(
            "release", job_id, lease=_or_empty(lease), delay=_or_empty(delay_ms), counts=int(counts), reason=reason
        )
        return Moved(reply[0].decode(), reply[1])

    async def bury(self, job_id: str, lease: int | None = None, reason: str = "") -> str:
        """To the dead letters now; the new state. Raises NotFound, NotReserved, StaleLease."""
        state: bytes = await self._one("bury", job_id, lease=_or_empty(lease), reason=reason)
        return state.decode()

    async def kick(self, ids: Sequence[str], topic: str = "") -> list[str | JobQueueError]:
        """Dead letters are ready again; for each its state, or NotFound, WrongState. With `topic` they were read in
        its index, which loses those that are none."""
        results = await self._each(
            "kick", ids, lambda job_id: job_id, lambda job_id: (job_id,), now=self.clock.now(), topic=topic
        )
        return [result if isinstance(result, JobQueueError) else result.decode() for result in results]

    async def kick_topic(self, topic: str, count: int) -> int:
        """Up to `count` dead letters of a topic are ready again, those first that died first; how many."""
        kicked = 0
        for keys in self.keys:
            while kicked < count:
                ids = await self._redis.read("ZRANGE", keys.dead(topic), 0, min(count - kicked, _MOST) - 1)
                if not ids:
                    break
                results = await self.kick([job_id.decode() for job_id in ids], topic)
                kicked += sum(result == "ready" for result in results)
                trouble = [
                    each for each in results if isinstance(each, JobQueueError) and not isinstance(each, Refused)
                ]
                if trouble and kicked:
                    return kicked
                if trouble:
                    raise trouble[0]
        return kicked

    async def run(self, job_id: str) -> int:
        """A delayed job is due now; its due time in ms. Raises NotFound, TooLate, Reserved, WrongState."""
        due: int = await self._one("run", job_id)
        return due

    async def update(
        self,
        job_id: str,
        *,
        delay_ms: int | None = None,
        due_ms: int | None = None,
        priority: int | None = None,
        ttl_ms: int | None = None,
        body: bytes | None = None,
    ) -> Moved:
        """Change what is given of a delayed or ready job. A time that is given to a ready one is TooLate.

        Raises NotFound, TooLate, Reserved, WrongState, and NoRoom for a body when Redis is full.
        """
        changes = {"delay": delay_ms, "due": due_ms, "priority": priority, "ttl": ttl_ms}
        arguments = {name: _or_empty(value) for name, value in changes.items()}
        # Told twice, a time that is now would find the job that it made ready itself.
        repeat = delay_ms is None and due_ms is None
        if body is None:
            reply = await self._one("update", job_id, repeat=repeat, **arguments)
        else:
            reply = await self._one("rewrite", job_id, repeat=repeat, body=body, **arguments)
        return Moved(reply[0].decode(), reply[1])

    async def due(self, shard: int, bucket: int) -> tuple[int, int]:
        """Move a page of what is due out of a bucket: (entries moved, us until the next; 0: at once, -1: none)."""
        async with self._paging[shard]:
            moved, wait = await self._call("due", shard, now=self.clock.now(), bucket=bucket, page=PAGE)
        return moved, wait

    async def get(self, job_id: str) -> Job | None:
        """The job, or its tombstone."""
        raw = await self._call("get", shard_of(job_id, len(self.keys)), now=self.clock.now(), id=job_id)
        try:
            return unpack(job_id, raw) if raw is not None else None
        except (ValueError, UnicodeDecodeError, IndexError):
            return None  # not a record; the next move that meets it sets it aside

    async def stats(self, topic: str | None = None) -> Stats:
        """The figures of one topic, or of all together."""
        counts: dict[str, int] = {}
        due = {name: 0 for name, _ in RANGES}
        ages: list[int] = []
        for shard, keys in enumerate(self.keys):
            topics = [topic] if topic is not None else await self.topics(shard)
            for each in topics:
                now, since, *fields = await self._call("stats", shard, now=self.clock.now(), topic=each)
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

    async def topics(self, shard: int) -> list[str]:
        """The topics of a shard, the least used first."""
        return [name.decode() for name in await self._redis.read("ZRANGE", self.keys[shard].topics, 0, -1)]

    async def _due_bins(self, key: str) -> AsyncIterator[tuple[int, int]]:
        """The bins of a topic's histogram, as (begin in ms, jobs), read in bounded steps."""
        cursor = b"0"
        while True:
            cursor, fields = await self._redis.read("HSCAN", key, cursor, "COUNT", 1000)
            for name, value in zip(fields[::2], fields[1::2], strict=True):
                yield int(name[1:]) * (3_600_000 if name[:1] == b"h" else 60_000), int(value)
            if cursor == b"0":
                return

    async def beat(self, shard: int, token: str, lease_ms: int) -> list[bool]:
        """Keep and take the locks of the shard's timers; for each whether it is ours. Raises NoMeta."""
        return [
            bool(ours) for ours in await self._call("beat", shard, token=token, lease=lease_ms, buckets=self.buckets)
        ]

    async def unlock(self, shard: int, token: str) -> None:
        """Give up the locks of the shard's timers."""
        await self._call("unlock", shard, token=token, buckets=self.buckets)

    async def listen(self, heard: Callable[[int, str], None], connected: Callable[[], None]) -> None:
        """Hear the bells of all shards, as (shard, message), until the connection is lost: then raises Unavailable."""
        shards = {keys.bell: shard for shard, keys in enumerate(self.keys)}
        await self._redis.listen(list(shards), lambda channel, message: heard(shards[channel], message), connected)

    async def close(self) -> None:
        """Wait until what must be given back is."""
        while self._late:
            await asyncio.gather(*self._late, return_exceptions=True)


def _or_empty(value: int | None) -> Value:
    return "" if value is None else value


def _range_of(ahead_ms: int) -> str:
    for name, end in RANGES:
        if end is None or ahead_ms < end * 1000:
            return name
    raise AssertionError("the last range has no end")
