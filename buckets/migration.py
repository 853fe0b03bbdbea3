"""Moving a namespace from one Redis to another, job by job, while services run on both.

A page of jobs goes in three steps. `take` on the old Redis removes them and keeps their records in a hash; `put` on the
new one keeps them as they were, unless an id is known there; then the hash goes. So no job is live on both, and at any
moment a mover may die: the hash that it left is put by the next one. Jobs that somebody has stay until they are
finished or come back.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import secrets
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

from buckets.errors import JobQueueError, NoRoom, Unavailable, Unfit
from buckets.job import Job
from buckets.keys import FAMILIES
from buckets.namespace import examine
from buckets.pages import Pages, chunks
from buckets.pool import Pool
from buckets.record import unpack_all
from buckets.redis.client import Redis
from buckets.scripts import Value
from buckets.shards import Item
from buckets.topics import Topics

REST = 1.0
PATIENCE_S = 10.0  # after which a hash is taken for one that a dead mover left
_PAGE = 100  # jobs a script: about 3 ms of Redis
_ROOM = 1 << 20  # bytes of records a script
_TRIES = 12  # of five seconds each, while the new Redis does not answer
_WAIT_S = 0.2  # between two looks for what is left

Progress = Callable[[int, int], None]
"""Is told how many jobs and tombstones were moved, and how many jobs somebody had at the last look."""


@dataclass(slots=True)
class Moved:
    """What was moved, by topic and state; how many of these the new Redis knew, and left as it had them; and whether
    the old one was found empty (else the mover was stopped)."""

    topics: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    known: int = 0
    done: bool = False

    @property
    def jobs(self) -> int:
        """How many jobs and tombstones."""
        return sum(states.total() for states in self.topics.values())


class _Stopped(Exception):
    """Between two pages."""


class Move:
    """A move of one namespace. Made by `open`."""

    def __init__(self, old: Pool, new: Pool, rest: float, patience_s: float, progress: Progress | None) -> None:
        self._old = old
        self._new = new
        self._pages = Pages(old.redis, rest)
        self._patience_s = patience_s
        self._progress = progress or (lambda moved, reserved: None)
        self._turn = itertools.count()
        self._stopping = False
        self._left = 0  # jobs and hashes that this pass had to leave
        self.moved = Moved()

    @classmethod
    async def open(
        cls,
        old: Redis,
        new: Redis,
        namespace: str = "jq",
        *,
        shards: int = 1,
        buckets: int = 8,
        rest: float = REST,
        patience_s: float = PATIENCE_S,
        progress: Progress | None = None,
    ) -> Self:
        """`shards` and `buckets` are for a new namespace that nobody has founded yet; `rest` is how many seconds the
        two are left to others after each second of work.

        Raises Unfit where one of the two is of another version, or damaged, or the old one is not there.
        """
        meta = await examine(old, namespace, buckets)
        if meta.empty:
            raise Unfit(f"there is no namespace {namespace} in the old Redis")
        if meta.faults:
            raise Unfit(f"the old namespace {namespace} is damaged. Run `jobqueue fsck --repair` on it")
        source = Pool(old, namespace, *meta.numbers)
        return cls(source, await Pool.open(new, namespace, shards=shards, buckets=buckets), rest, patience_s, progress)

    def stop(self) -> None:
        """Let `run` end behind the page that is under way."""
        self._stopping = True

    async def run(self) -> Moved:
        """Move until the old Redis has no job; what was moved. Raises NoRoom when the new one is full, and Unavailable
        when one of them does not answer: then nothing is lost, and it may be run again."""
        paused = await self._copy_pauses()
        try:
            while not await self._pass():  # noqa: ASYNC110 - others take jobs and give them back, where we hear nothing
                await asyncio.sleep(_WAIT_S if self._left else 0)
        except _Stopped:
            return self.moved
        for topic in paused:
            await Topics(self._old).resume(topic)
        self.moved.done = True
        return self.moved

    async def _copy_pauses(self) -> list[str]:
        """Pause on the new Redis what is paused on the old one; these topics."""
        old, new, shard, cursor = Topics(self._old), Topics(self._new), 0, 0
        paused = []
        while True:
            topics, shard, cursor = await old.page("*", shard, cursor)
            for topic in topics:
                if topic.paused_until is not None:
                    paused.append(topic.name)
                    await self._pause(new, topic.name, topic.paused_until)
            if not shard and not cursor:
                return paused

    async def _pause(self, new: Topics, topic: str, until: int) -> None:
        if await new.paused_until(topic) is None:
            await new.pause(topic, max(until - await self._new.now_ms(), 1) if until else None)

    async def _pass(self) -> bool:
        """Move all that can be; whether there was nothing."""
        before, self._left = self.moved.jobs, 0
        for shard in range(len(self._old.keys)):
            await self._move_ready(shard)
        await self._move_all()
        if self.moved.jobs > before:
            return False
        if self._left:
            await self._end_leases()
        return not self._left

    async def _end_leases(self) -> None:
        """Do the work of the timers, which may run nowhere any more."""
        for shard in range(len(self._old.keys)):
            for bucket in range(self._old.buckets):
                await self._pages.step(self._old.due(shard, bucket))

    async def _move_ready(self, shard: int) -> None:
        """The jobs of the ready lists, in their order."""
        keys = self._old.keys[shard]
        for topic in await Topics(self._old).names(shard):
            lists = range(9, -1, -1)
            read = self._old.redis.read
            lengths = await asyncio.gather(*(read("LLEN", keys.ready(each, topic)) for each in lists))
            for priority, length in zip(lists, lengths, strict=True):
                rest = length
                while rest > 0:  # what comes meanwhile is for the next pass
                    looked = await self._move(shard, (), f"{priority}:{topic}")
                    rest = rest - looked if looked else 0

    async def _move_all(self) -> None:
        """All others, and what movers left that died."""
        namespace = self._old.keys[0].tag.partition(":")[0]
        form = re.compile(re.escape(namespace.encode()) + rb":(\d{1,3})\}:([jm]):(.*)", re.S)
        async for page in self._pages.keys(f"{namespace}:*}}:[jm]:*"):
            ids: defaultdict[int, dict[bytes, None]] = defaultdict(dict)
            for key in page:
                match = form.fullmatch(key)
                if match and int(match[1]) < len(self._old.keys):
                    shard = int(match[1])
                    if match[2] == FAMILIES["JOB"][:1].encode():
                        ids[shard][match[3]] = None
                    else:
                        await self._move_left_behind(shard, key)
            for shard, some in ids.items():
                for chunk in chunks(list(some), _PAGE):
                    looked = 0
                    while looked < len(chunk):
                        looked += await self._move(shard, chunk[looked:])

    async def _move(self, shard: int, ids: Sequence[bytes], front: str = "") -> int:
        """Move a page of jobs, those of a ready list or named ones; how many entries or jobs were looked at."""
        if self._stopping:
            raise _Stopped
        looked, reserved, key, *pairs = await self._pages.step(
            self._old.call(
                *("export", shard, ids),
                now=self._old.clock.now(),
                batch=secrets.token_hex(8),
                front=front,
                page=_PAGE,
                room=_ROOM,
            )
        )
        self._left += reserved
        if pairs:
            await self._deliver(key, unpack_all(pairs))
        return int(looked)

    async def _move_left_behind(self, shard: int, key: bytes) -> None:
        taken_ms = int(key.split(b":")[-2])
        if await self._old.now_ms() - taken_ms < self._patience_s * 1000:
            self._left += 1  # another mover is about to put these
            return
        flat = await self._old.redis.read("HGETALL", key)
        if flat:
            await self._deliver(key, unpack_all(flat))

    async def _deliver(self, key: bytes, jobs: Sequence[Job]) -> None:
        """Put jobs that were taken, then let go of the hash that keeps them."""
        results = await self._put(self._new, jobs)
        refused = [job for job, result in zip(jobs, results, strict=True) if isinstance(result, NoRoom)]
        _raise_first(
            result for result in results if not isinstance(result, NoRoom)
        )  # some may be there: the hash stays
        _raise_first(await self._put(self._old, refused))
        await self._old.redis.read("UNLINK", key)
        for job, result in zip(jobs, results, strict=True):
            if not isinstance(result, NoRoom):
                self.moved.topics[job.topic][job.state.word] += 1
                self.moved.known += not result
        self._progress(self.moved.jobs, self._left)
        _raise_first(results)

    async def _put(self, pool: Pool, jobs: Sequence[Job]) -> list[Any]:
        """For each 1, 0 where its id is known, or an error."""
        items = [Item(job.id, (job.id, job.raw), len(job.raw)) for job in jobs]
        results: list[Any] = [Unavailable()] * len(items)
        for _ in range(_TRIES):
            places = [at for at, result in enumerate(results) if isinstance(result, Unavailable)]
            if not places:
                break
            some = await pool.spread([items[at] for at in places], partial(self._put_in, pool))
            for at, result in zip(places, some, strict=True):
                results[at] = result
        return results

    async def _put_in(self, pool: Pool, shard: int, items: Sequence[Item]) -> list[Any]:
        own: dict[str, Value] = {"now": pool.clock.now(), "buckets": pool.buckets}
        return await pool.run_in(shard, "import", items, own, fresh=lambda: {"bucket": next(self._turn)})


def _raise_first(results: Iterable[Any]) -> None:
    for result in results:
        if isinstance(result, JobQueueError):
            raise result
