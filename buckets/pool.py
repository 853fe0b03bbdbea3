"""The job pool: one method a move.

Nothing is decided here. A method packs its arguments, calls one script a shard (more for a batch that would hold
Redis too long), and turns the answer into values.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import random
from collections.abc import Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from buckets.add_codec import Added, Preparing, may_be_repeated, pack_groups, read_results
from buckets.clock import Clock
from buckets.coalesce import Coalescer
from buckets.errors import JobQueueError
from buckets.job import STATE_WORDS, Job, NewJob, State
from buckets.keys import shard_of
from buckets.pop_search import Ask, Popped, PopSearch
from buckets.ready_shards import ReadyShards
from buckets.record import unpack, unpack_all
from buckets.redis.client import Redis
from buckets.scripts import Value
from buckets.shards import MOST, Item, OneScript, Shards

log = logging.getLogger(__name__)

PAGE = 150  # due entries a script: about 1.5 ms of Redis, a third of what a script may take


class Moved(NamedTuple):
    """A job's new state, and when it is due (ms)."""

    state: str
    due: int


class _Asks:
    """Those that one script may serve."""

    def __init__(self) -> None:
        self._asks = 0

    def take(self, asks: Sequence[Ask]) -> bool:
        self._asks += len(asks)
        return self._asks <= MOST


class Pool(Shards):
    """The jobs of one namespace. Made by `Pool.open`."""

    def __init__(self, redis: Redis, namespace: str, shards: int, buckets: int, clock: Clock | None = None) -> None:
        super().__init__(redis, namespace, shards, buckets, clock)
        self.ready_shards = ReadyShards(shards)
        self._turn = itertools.count(random.randrange(buckets))  # round robin; each process begins elsewhere
        self._late: set[asyncio.Task[Any]] = set()
        self._unheard = False  # whether a pop's caller left before its answer came
        # Two pages at a time keep Redis busy; with one a bucket, everyone else would wait behind eight.
        self._paging = [asyncio.Semaphore(2) for _ in self.keys]
        self._preparing = Preparing(shards)
        # One a shard: a server of a Cluster that is away holds up nobody whose jobs are elsewhere.
        self._adding = [Coalescer(partial(self._add, shard, True), OneScript) for shard in range(shards)]
        self._adding_once = [Coalescer(partial(self._add, shard, False), OneScript) for shard in range(shards)]
        self._finishing = [Coalescer(partial(self._finish, shard), OneScript) for shard in range(shards)]
        self._popping = Coalescer(self._pop_ones, _Asks, self._return, patient=True)

    async def add(self, jobs: Sequence[NewJob]) -> list[Added | JobQueueError]:
        """Keep jobs; as if one after the other. Errors stand in the places of their jobs."""
        prepared = self._preparing.job
        items = [Item(job.id, (prepared(job),), len(job.body)) for job in jobs]
        adding = self._adding if all(map(may_be_repeated, jobs)) else self._adding_once
        results = await self.spread(items, lambda shard, some: adding[shard].hand_in(some))
        self._tell_ready(zip(jobs, results, strict=True))
        return results

    async def add_groups(self, groups: Sequence[Sequence[NewJob]]) -> list[list[Added] | JobQueueError]:
        """Keep groups of jobs, one after the other; of each all jobs or none. The ids of a group are the same up to
        their first `@`, and those of two topics differ."""
        items = [
            Item(
                group[0].id.partition("@")[0],
                [self._preparing.job(job) for job in group],
                sum(len(job.body) for job in group),
                len(group),
            )
            for group in groups
        ]
        repeat = all(may_be_repeated(job) for group in groups for job in group)
        added = await self.spread(items, lambda shard, some: self._add(shard, repeat, some))
        results = [[result] if isinstance(result, Added) else result for result in added]
        for group, result in zip(groups, results, strict=True):
            if isinstance(result, list):
                self._tell_ready(zip(group, result, strict=True))
        return results

    def _tell_ready(self, added: Iterable[tuple[NewJob, Added | JobQueueError]]) -> None:
        """Who is told that a job is ready, pops it here before the bell is heard."""
        if len(self.keys) > 1:
            for job, result in added:
                if isinstance(result, Added) and result.state == State.READY.word:
                    self.ready_shards.stir_topic(shard_of(job.id, len(self.keys)), job.topic)

    def _moved(self, job_id: str, state: str) -> None:
        """The same for a job whose topic is not known."""
        if state == State.READY.word:
            self.ready_shards.stir(shard_of(job_id, len(self.keys)))

    async def _add(self, shard: int, repeat: bool, items: Sequence[Item]) -> list[Any]:
        return await self.run_in(
            shard,
            "add",
            items,
            {"now": self.clock.now(), "buckets": self.buckets},
            fresh=lambda: {"bucket": next(self._turn)},
            repeat=repeat,
            pack=pack_groups,
            read=read_results,
        )

    async def pop(
        self, topics: Sequence[str], count: int = 1, *, ttr_ms: int | None = None, worker: str = "", room: int = 8 << 20
    ) -> Popped:
        """Reserve up to `count` ready jobs (up to `room` bytes of them, one always) of the topics, tried in order.

        When the caller is cancelled while Redis works on it, what was reserved is given back.
        """
        ask = Ask(tuple(topics), "" if ttr_ms is None else ttr_ms, room, worker)
        popped = await self._pop_one(ask) if count == 1 else await self._pop_many(ask, count)
        self._tell(popped.jobs)
        return popped

    def _tell(self, jobs: Sequence[Job]) -> None:
        late_us: dict[str, list[int]] = {}
        for job in jobs:
            kind = job.kind
            if kind.deliveries == 1:
                late_us.setdefault(kind.topic, []).append(max(kind.lease - job.due * 1000, 0))
        for topic, each in late_us.items():
            self.redis.meter.delivered(topic, each)

    async def _pop_many(self, ask: Ask, count: int) -> Popped:
        popped = Popped()
        try:
            await self._pop(popped, ask, count, [(count, ask.worker)])
        except asyncio.CancelledError:
            self._unheard = True
            self.unpop_later(popped.jobs)
            raise
        return popped

    async def _pop_one(self, ask: Ask) -> Popped:
        """Concurrent ones share a script."""
        popping = self._popping.hand_in([ask])
        try:
            popped: Popped | JobQueueError = (await popping)[0]
        except asyncio.CancelledError:
            if popping.done() and not popping.cancelled() and not popping.exception():
                self._return(popping.result())  # it came in the same turn
            raise
        if isinstance(popped, JobQueueError):
            raise popped
        return popped

    def _return(self, results: Sequence[Popped | JobQueueError]) -> None:
        """Nobody hears these."""
        for popped in results:
            if isinstance(popped, Popped):
                self.unpop_later(popped.jobs)

    async def _pop_ones(self, asks: Sequence[Ask]) -> list[Popped | JobQueueError]:
        """A job for each, if there is one; those who ask for the same first come first served."""
        alike: dict[tuple[Any, ...], list[int]] = {}
        for place, ask in enumerate(asks):
            alike.setdefault((*ask[:3], bool(ask.worker)), []).append(place)
        results: list[Popped | JobQueueError] = [Popped() for _ in asks]

        async def go(places: list[int]) -> None:
            popped, first = Popped(), asks[places[0]]
            workers = [(1, asks[place].worker) for place in places]
            try:
                await self._pop(popped, first._replace(room=first.room * len(places)), len(places), workers)
            except JobQueueError as error:
                for place in places:
                    results[place] = error
                return
            for turn, place in enumerate(places):
                results[place] = Popped(popped.jobs[turn : turn + 1], popped.left, popped.opens_us)

        if len(alike) == 1:
            await go(*alike.values())
        else:
            await asyncio.gather(*map(go, alike.values()))
        return results

    async def _pop(self, popped: Popped, ask: Ask, count: int, workers: list[tuple[int, str]]) -> None:
        """Fill `popped`; what comes when the caller is cancelled goes back. `workers`: how many jobs each gets."""
        bucket = next(self._turn) % self.buckets
        search = PopSearch(self, self.ready_shards, ask, count, workers, bucket, self._take_back, popped)
        if len(self.keys) == 1:
            await search.in_one()
            return
        await search.in_many()
        self._unheard |= search.left_behind

    def _take_back(self, reply: Any) -> None:
        """Nobody hears what a pop brought."""
        if isinstance(reply, list):  # else it failed
            self.unpop_later(unpack_all(reply[3:]))

    async def _give_back(self, jobs: Sequence[Job]) -> None:
        results = await self.unpop(jobs)
        kept = sum(isinstance(result, JobQueueError) for result in results)
        if kept:  # their TTR brings them back
            log.warning("jobs.kept", extra={"jobs": kept})

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        """Do it without keeping anybody waiting; `close` does."""
        task = asyncio.create_task(work)
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    def unpop_later(self, jobs: Sequence[Job]) -> None:
        """As `unpop`, without waiting for it."""
        if jobs:
            self._later(self._give_back(jobs))

    async def unpop(self, jobs: Sequence[Job]) -> list[int | JobQueueError]:
        """Give deliveries that reached nobody back to the front of their lists, attempts as before; for each, from
        the last, 1 or 0 where it stays.

        A job whose lease is not the newest any more stays as it is. One popped at most once is gone.
        """
        last_first = jobs[::-1]  # each is put before those that came after it, over all scripts of a large batch
        items = [Item(job.id, (job.id, job.lease)) for job in last_first]
        return await self.each("unpop", items, now=self.clock.now())

    async def finish(self, jobs: Sequence[tuple[str, int | None]]) -> list[str | JobQueueError]:
        """End jobs, given as (id, lease or None); for each `finished`, or NotFound, NotReserved, StaleLease."""
        items = [Item(job_id, (job_id, _or_empty(lease))) for job_id, lease in jobs]
        return _words(await self.spread(items, lambda shard, some: self._finishing[shard].hand_in(some)))

    def is_one_script(self, ids: Sequence[str]) -> bool:
        """Whether what changes these jobs leaves for Redis at once, and not one part behind another."""
        return OneScript().take([Item(job_id, ()) for job_id in ids])

    async def begun(self) -> None:
        """Wait until what `finish` was called for has left, so far as it is one script (`is_one_script`): what is
        asked for now comes behind it."""
        for finishing in self._finishing:
            await finishing.begun()

    async def _finish(self, shard: int, items: Sequence[Item]) -> list[Any]:
        return await self.run_in(shard, "finish", items, {"now": self.clock.now()})

    async def delete(self, ids: Sequence[str]) -> list[str | JobQueueError]:
        """Cancel jobs; for each the state it was in, or NotFound, WrongState."""
        items = [Item(job_id, (job_id,)) for job_id in ids]
        return _words(await self.each("delete", items, now=self.clock.now()))

    async def touch(self, job_id: str, lease: int | None = None, ttr_ms: int | None = None) -> int:
        """The lease runs anew from now, for `ttr_ms` or as long as before; until when, in ms.

        Raises NotFound, NotReserved, StaleLease.
        """
        until: int = await self.one("touch", job_id, lease=_or_empty(lease), ttr=_or_empty(ttr_ms))
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
        reply = await self.one(
            "release", job_id, lease=_or_empty(lease), delay=_or_empty(delay_ms), counts=int(counts), reason=reason
        )
        moved = Moved(reply[0].decode(), reply[1])
        self._moved(job_id, moved.state)
        return moved

    async def bury(self, job_id: str, lease: int | None = None, reason: str = "") -> str:
        """To the dead letters now; the new state. Raises NotFound, NotReserved, StaleLease."""
        state: bytes = await self.one("bury", job_id, lease=_or_empty(lease), reason=reason)
        return state.decode()

    async def kick(self, ids: Sequence[str]) -> list[str | JobQueueError]:
        """Dead letters are ready again; for each its state, or NotFound, WrongState."""
        items = [Item(job_id, (job_id,)) for job_id in ids]
        states = _words(await self.each("kick", items, now=self.clock.now(), topic=""))
        for job_id, state in zip(ids, states, strict=True):
            if isinstance(state, str):
                self._moved(job_id, state)
        return states

    async def run(self, job_id: str) -> int:
        """A delayed job is due now; its due time in ms. Raises NotFound, TooLate, Reserved, WrongState."""
        due: int = await self.one("run", job_id)
        self._moved(job_id, State.READY.word)
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
            reply = await self.one("update", job_id, repeat=repeat, **arguments)
        else:
            reply = await self.one("rewrite", job_id, repeat=repeat, body=body, **arguments)
        moved = Moved(reply[0].decode(), reply[1])
        self._moved(job_id, moved.state)
        return moved

    async def due(self, shard: int, bucket: int) -> tuple[int, int]:
        """Move a page of what is due out of a bucket: (entries moved, us until the next; 0: at once, -1: none)."""
        async with self._paging[shard]:
            moved, wait, *late = await self.call("due", shard, now=self.clock.now(), bucket=bucket, page=PAGE)
        self.redis.meter.paged(moved)
        for topic, late_us, jobs in zip(late[::3], late[1::3], late[2::3], strict=True):
            self.redis.meter.promoted(topic.decode("utf-8", "replace"), late_us, jobs)
        return moved, wait

    async def get(self, job_id: str) -> Job | None:
        """The job, or its tombstone."""
        raw = await self.one("get", job_id)
        try:
            return unpack(job_id, raw) if raw is not None else None
        except (ValueError, UnicodeDecodeError, IndexError):
            return None  # not a record; the next move that meets it sets it aside

    async def close(self) -> None:
        """Wait until what must be given back is, and for the work under way."""
        for gather in (*self._adding, *self._adding_once, *self._finishing):
            await gather.close()
        await self._popping.close()
        if self._unheard:
            with contextlib.suppress(JobQueueError):
                for server in await self.redis.servers():
                    await server.read("PING")  # answered behind what was asked before
        while self._late:
            await asyncio.gather(*self._late, return_exceptions=True)


def _or_empty(value: int | None) -> Value:
    return "" if value is None else value


def _words(results: Sequence[Any]) -> list[str | JobQueueError]:
    return [result if isinstance(result, JobQueueError) else STATE_WORDS[result] for result in results]
