"""A pop's search for ready jobs: which shards it asks, what it learns from their replies, and when it has enough.

If a Cluster server is away, pops skip its shards instead of waiting, unless all servers are away.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple

from buckets.errors import JobQueueError, Unavailable
from buckets.job import Job
from buckets.pool.limits import NO_LIMIT, Closed, Granted, Limits, read_closed
from buckets.pool.ready_shards import ReadyShards
from buckets.record import unpack_all
from buckets.redis.link import Orphan
from buckets.scripts import Value
from buckets.shards import MOST, Shards

IN_ORDER, BY_PRIORITY = "pop", "pop_by_priority"  # the scripts: which jobs of several topics come first
_LIMITED = "pop_limited"  # the script in place of both if a topic has limits
_NOTHING_MORE: dict[str, Any] = {}
_GRACE_S = 1.0  # past the deadline, for asking further shards
_NONE_PAUSED = -1
_LOOK_S = 0.1  # between checks whether a silent server is away


@dataclass(slots=True)
class Popped:
    """The result of a pop. `left`: how many ready jobs are left in the last topic searched. `opens_us`: after how many
    us the first paused topic resumes, or None if none is paused for a limited time. `ask_why`: whether an empty pop may
    have a reason: a topic is paused, has reached a limit, or does not exist. `limited`: the topics whose limits hold
    back ready jobs."""

    jobs: list[Job] = field(default_factory=list)
    left: int = 0
    opens_us: int | None = None
    ask_why: bool = False
    limited: tuple[Closed, ...] = ()


class Ask(NamedTuple):
    """What a pop asks for, except how many jobs."""

    topics: tuple[str, ...]
    ttr: Value
    room: int
    script: str
    worker: str


Way = tuple[str, dict[str, Any], Sequence[Value]]


class Offer(NamedTuple):
    """Similar waiting pops, to which a timer may hand due jobs: they set no ttr, and want jobs in the order of the
    topics."""

    topics: tuple[str, ...]
    workers: list[tuple[int, str]]
    """How many jobs each pop wants and its worker, in the order of serving."""

    def arguments(self) -> list[Value]:
        """The arguments for due.lua."""
        want = sum(jobs for jobs, _ in self.workers)
        return [want, turns(self.workers, 0), len(self.topics), *self.topics]


def ask_for(
    topics: Sequence[str],
    *,
    ttr_ms: int | None = None,
    worker: str = "",
    room: int = 8 << 20,
    by_priority: bool = False,
) -> Ask:
    """The ask of a `Pool.pop` with these arguments."""
    return Ask(tuple(topics), "" if ttr_ms is None else ttr_ms, room, BY_PRIORITY if by_priority else IN_ORDER, worker)


@dataclass(slots=True)
class PopSearch:
    """One pop in progress. It fills `popped`."""

    shards: Shards
    ready_shards: ReadyShards
    ask: Ask
    count: int
    bucket: int
    orphan: Orphan
    """Receives a reply whose caller has stopped waiting."""
    popped: Popped
    left_behind: bool = False
    """Whether a reply is outstanding for which the search no longer waits."""
    _room: int = field(init=False)
    _granted: dict[str, Granted] = field(default_factory=dict)
    """With several shards: the permits that were taken, by topic."""

    def __post_init__(self) -> None:
        self._room = self.ask.room

    async def in_one(self) -> None:
        """Search the only shard."""
        try:
            await self._look(0, self.ask.topics, self.shards.limits)
        except JobQueueError:
            if not self.popped.jobs:
                raise  # otherwise the jobs of earlier scripts are already with this worker

    async def in_many(self) -> None:
        """Search one shard after the other. Raises Unavailable if none of the asked shards answered."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.shards.redis.timeout_s
        self.popped.ask_why = True  # not every shard is asked for every topic
        trouble: Unavailable | None = None
        answered = False
        places = self.ready_shards.places if self.ask.script == IN_ORDER else self.ready_shards.places_together
        for shard, topics in places(self.ask.topics):
            if not self._wants_more() or loop.time() > deadline + _GRACE_S:
                break
            if self.shards.is_away(shard) and (trouble or self.shards.is_passed_over(shard)):
                continue
            patience = _Patience(self, shard, deadline)
            try:
                async with patience:
                    await self._look(shard, await self._permitted(topics), self._granted)
                answered = True
            except Unavailable as error:
                self.left_behind |= patience.is_over
                trouble = trouble if self.shards.is_passed_over(shard) else error
            except JobQueueError:
                if self.popped.jobs:
                    return
                raise
        if trouble and not answered and not self.popped.jobs:
            raise trouble

    def _wants_more(self) -> bool:
        return len(self.popped.jobs) < self.count and (self._room > 0 or not self.popped.jobs)

    async def _permitted(self, topics: Sequence[str]) -> Sequence[str]:
        """The topics whose jobs may be delivered. Permits are taken for all jobs that the pop may find; unneeded
        permits lapse."""
        for topic in topics:
            limit = self.shards.limits.get(topic)
            if limit and limit.rate and topic not in self._granted:
                permits, opens_us = await self.shards.take_permits(topic, min(self.count - len(self.popped.jobs), MOST))
                self._granted[topic] = Granted(permits)
                if opens_us:
                    self._note_limited([Closed(topic, "rate", opens_us)])
        return [topic for topic in topics if topic not in self._granted or self._granted[topic].permits]

    def _note_limited(self, limited: Sequence[Closed]) -> None:
        for topic, limit, _ in limited:
            self.shards.redis.meter.limited(topic, limit)
        self.popped.limited += tuple(limited)

    async def _look(self, shard: int, topics: Sequence[str], limits: Limits | Mapping[str, Granted]) -> None:
        """Take the ready jobs of a shard."""
        popped = self.popped
        left, more = 0, bool(topics)
        while more and self._wants_more():
            want = min(self.count - len(popped.jobs), MOST)
            stamp = self.ready_shards.asked(shard, topics)
            script, named, rest = way_of(self.ask.script, topics, limits)
            reply = await self.shards.call(
                script,
                shard,
                rest,
                orphan=self.orphan,
                now=self.shards.clock.now(),
                bucket=self.bucket,
                want=want,
                room=max(self._room, 0),
                always=0 if popped.jobs else 1,
                ttr=self.ask.ttr,
                workers=turns([(self.count, self.ask.worker)], len(popped.jobs)),
                **named,
            )
            found, cut_short = read_reply(reply)
            pairs = reply[3:]
            left = found.left
            if limits is self._granted:
                self._spend(found.jobs)
            elif found.limited:
                popped.limited = ()
                self._note_limited(found.limited)
            popped.ask_why |= found.ask_why
            if found.opens_us is not None:
                known = found.opens_us if popped.opens_us is None else popped.opens_us
                popped.opens_us = min(found.opens_us, known)
            popped.jobs += found.jobs
            self._room -= sum(map(len, pairs[1::2]))
            is_full = len(pairs) == 2 * want
            more = cut_short or is_full
            if is_full:  # the search ended in the topic of the last job
                self.ready_shards.left(shard, popped.jobs[-1].topic, left, stamp)
            elif not more and not left and found.opens_us is None:
                closed = {each.topic for each in found.limited}
                self.ready_shards.emptied(shard, [each for each in topics if each not in closed], stamp)
        popped.left += left

    def _spend(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            if job.topic in self._granted:
                self._granted[job.topic].permits -= 1


def way_of(script: str, topics: Sequence[str], limits: Limits | Mapping[str, Granted]) -> Way:
    """The script that serves a pop, the arguments that only this script has, and the topics in its form."""
    if not limits or not any(topic in limits for topic in topics):
        return script, _NOTHING_MORE, topics
    rest = [value for topic in topics for value in (topic, *limits.get(topic, NO_LIMIT).arguments)]
    return _LIMITED, {"by_priority": int(script == BY_PRIORITY)}, rest


def read_reply(reply: list[Any]) -> tuple[Popped, bool]:
    """The result of a pop's script, and whether the script stopped early, so that there may be more jobs."""
    left, cut_short, opens, *pairs = reply
    limited: tuple[Closed, ...] = ()
    if type(opens) is list:
        opens, *flat = opens
        limited = read_closed(flat)
    ask_why = left < 0 or opens != _NONE_PAUSED or limited != ()
    return Popped(unpack_all(pairs), max(left, 0), opens if opens >= 0 else None, ask_why, limited), bool(cut_short)


class _Patience:
    """Lets a block run until the deadline, or until its shard is passed over, but at least for a moment; then raises
    Unavailable."""

    def __init__(self, search: PopSearch, shard: int, deadline: float) -> None:
        self._search = search
        self._shard = shard
        self._deadline = deadline
        self._limit = asyncio.timeout(None)
        self._loop = asyncio.get_running_loop()
        self.is_over = False

    async def __aenter__(self) -> None:
        await self._limit.__aenter__()
        self._next = self._loop.call_later(_LOOK_S, self._look)

    def _look(self) -> None:
        if self._loop.time() > self._deadline or self._search.shards.is_passed_over(self._shard):
            self._limit.reschedule(self._loop.time())
        else:
            self._next = self._loop.call_later(_LOOK_S, self._look)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._next.cancel()
        try:
            await self._limit.__aexit__(kind, error, trace)
        except TimeoutError:
            self.is_over = True
            raise Unavailable() from None


def turns(workers: list[tuple[int, str]], served: int) -> bytes:
    """The script's argument that says which worker gets which job, without the jobs that were already served."""
    parts = []
    for jobs, name in workers:
        if jobs > served:
            raw = name.encode()
            parts.append(struct.pack(">HH", jobs - served, len(raw)) + raw)
        served = max(served - jobs, 0)
    return b"".join(parts)
