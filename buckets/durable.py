"""The pool's changes, replicated or fsynced: safer than in the memory of one Redis.

Durable changes use a connection of their own, because WAIT blocks the commands after it, and a barrier follows the
changes on that connection. A durability is reported only if it was reached; if that is unknown, `local` is reported.

A barrier establishes whether everything answered on a connection so far has reached the replicas, or the disk. WAIT
covers only the writes of its own connection, and after a failover it does not cover what the old master answered. A
barrier is therefore a small write (barrier.lua) followed by WAIT, both on the connection on which the changes were
answered. A barrier also covers changes that wrote nothing, such as a repeated add.

Because WAIT blocks the commands after it, only one barrier is in flight at a time, and all callers that arrive
meanwhile share the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence, Set
from functools import partial
from typing import Any, Final, Literal, NamedTuple, TypeVar

from buckets.errors import JobQueueError, Unanswered, Unavailable
from buckets.job import NewJob, State
from buckets.keys import Keys, shard_of
from buckets.meter import Meter
from buckets.pool.codec import Added, may_be_repeated
from buckets.pool.lanes import Sent
from buckets.pool.pool import Moved, Pool
from buckets.redis.link import ErrorReply, Link
from buckets.scripts import SCRIPTS, Value

Durability = Literal["local", "replicated", "fsynced"]
LOCAL: Final = "local"  # in the memory of the Redis that accepted it, and on its disk as its configuration says
REPLICATED: Final = "replicated"
FSYNCED: Final = "fsynced"
_SCRIPT = SCRIPTS["barrier"].text
# Only with these settings does Redis fsync every write before it answers. WAITAOF alone is no proof: with `everysec`,
# Redis 7.4 and Valkey up to 9.1 let it succeed before the fsync (redis/redis#13793; seen with strace).
_SYNCED = {b"appendonly": b"yes", b"appendfsync": b"always", b"no-appendfsync-on-rewrite": b"no"}


class _Round:
    """The callers that share one barrier."""

    def __init__(self) -> None:
        self.shards: dict[str, Keys] = {}
        self.wanted: set[str] = set()
        self.outcome: asyncio.Future[tuple[Set[str], Set[str]]] = asyncio.get_running_loop().create_future()
        """The shards (by the keys of their meta) whose barrier was written, and the durabilities that were reached."""


class Barrier:
    """The barriers of one connection."""

    def __init__(self, link: Link, replicas: int, timeout_ms: int, meter: Meter) -> None:
        """`replicas`: how many must acknowledge; `timeout_ms`: how long to wait for them, at least 1."""
        self.link = link
        self._replicas = replicas
        self._meter = meter
        self._waits: dict[str, list[Sequence[Value]]] = {
            REPLICATED: [("WAIT", replicas, timeout_ms)],
            FSYNCED: [("CONFIG", "GET", *_SYNCED), ("WAITAOF", 1, 0, timeout_ms)],
        }
        self._holds: dict[str, Callable[..., bool]] = {REPLICATED: self._is_replicated, FSYNCED: _is_synced}
        self._next: _Round | None = None
        self._working: asyncio.Task[None] | None = None

    async def reached(self, shard: Keys, wanted: Set[str]) -> Set[str]:
        """Returns which of the wanted durabilities hold for everything answered on this connection about the shard so
        far. Raises Unanswered if that is unknown: the connection is lost, or its server no longer serves the shard."""
        current = self._next = self._next or _Round()
        current.shards[shard.meta] = shard
        current.wanted |= wanted
        if self._working is None or self._working.done():
            self._working = asyncio.create_task(self._work())
        passed, reached = await asyncio.shield(current.outcome)
        if shard.meta not in passed:
            raise Unanswered
        return reached & wanted

    async def _work(self) -> None:
        while self._next:
            current, self._next = self._next, None
            begun = time.perf_counter()
            try:
                current.outcome.set_result(await self._put(current))
            except Unanswered as error:
                current.outcome.set_exception(error)
                current.outcome.exception()  # retrieved here, in case no caller is still waiting
            self._meter.barrier_passed(time.perf_counter() - begun)

    async def _put(self, current: _Round) -> tuple[Set[str], Set[str]]:
        if self.link.lost:
            raise Unanswered
        ask = self.link.ask
        barriers = [ask(("EVAL", _SCRIPT, 2, shard.meta, shard.never)) for shard in current.shards.values()]
        waits = {each: list(map(ask, commands)) for each, commands in self._waits.items() if each in current.wanted}
        written = await asyncio.gather(*barriers)
        passed = {
            meta for meta, reply in zip(current.shards, written, strict=True) if not isinstance(reply, ErrorReply)
        }
        reached = {each for each, replies in waits.items() if self._holds[each](*await asyncio.gather(*replies))}
        return passed, reached

    def _is_replicated(self, replicas: Any) -> bool:
        return isinstance(replicas, int) and replicas >= self._replicas


def _is_synced(config: Any, waited: Any) -> bool:
    """Whether everything answered before is on disk, according to the replies to CONFIG GET and WAITAOF. Redis 7.0 has
    no WAITAOF; where it exists, it also covers an append-only file that is still being created."""
    if isinstance(config, ErrorReply) or dict(zip(config[::2], config[1::2], strict=True)) != _SYNCED:
        return False
    if isinstance(waited, ErrorReply):
        return "unknown command" in str(waited)
    return bool(waited[0] == 1)


_TRIES = 3  # attempts to make a change and learn its durability, if connections are lost meanwhile

T = TypeVar("T")
Work = Callable[[Sequence[Any]], Awaitable[Sequence[Any]]]
"""Changes one job per item; returns a result or an error for each, in order."""
Report = Callable[[Sequence[Durability]], None]
"""Receives the durability that each change of a call reached, in order."""


class Want(NamedTuple):
    """A change and the durability that it should reach."""

    id: str
    """The id of its job."""
    durability: Durability
    item: Any
    """The argument of `Work` for this change."""


class Outcome(NamedTuple):
    """The result of a change, and the durability that it reached."""

    result: Any
    durability: Durability


class Durable:
    """Makes changes durable; a process has one."""

    def __init__(self, pool: Pool, replicas: int, timeout_s: float) -> None:
        """`pool`: makes the changes, over a connection of its own. `replicas`: how many replicas must have a change
        before it counts as replicated. `timeout_s`: how long to wait for them, capped at half of the Redis client's
        timeout."""
        self.pool = pool
        self._replicas = replicas
        self._timeout_ms = max(round(min(timeout_s, pool.redis.timeout_s / 2) * 1000), 1)
        self._barriers: dict[Link, Barrier] = {}

    def wanting(self, durabilities: Sequence[Durability], report: Report) -> DurablePool:
        """The pool's methods for one call. Each of its changes should reach the durability at its place in
        `durabilities`. `report` receives the durabilities that were reached."""
        return DurablePool(self, durabilities, report)

    async def change(self, wants: Sequence[Want], work: Work, *, repeat: bool = True) -> list[Outcome]:
        """Make changes, each shard's separately, and return the outcome of each. `repeat`: whether `work` may run again
        if its connection was lost before the outcome was known; if not, such a change counts as `local`."""
        tries = _TRIES if repeat else 1
        if len(self.pool.keys) == 1:
            outcomes = await self._in_shard(self.pool.keys[0], wants, work, tries)
        else:
            outcomes = await self._in_shards(wants, work, tries)
        self._count(wants, outcomes)
        return outcomes

    async def _in_shards(self, wants: Sequence[Want], work: Work, tries: int) -> list[Outcome]:
        indexes: dict[int, list[int]] = {}
        for index, want in enumerate(wants):
            indexes.setdefault(shard_of(want.id, len(self.pool.keys)), []).append(index)
        parts = [
            self._in_shard(self.pool.keys[shard], [wants[index] for index in own], work, tries)
            for shard, own in indexes.items()
        ]
        outcomes: list[Any] = [None] * len(wants)
        for own, part in zip(indexes.values(), await asyncio.gather(*parts), strict=True):
            for index, outcome in zip(own, part, strict=True):
                outcomes[index] = outcome
        return outcomes

    async def _in_shard(self, shard: Keys, wants: Sequence[Want], work: Work, tries: int) -> list[Outcome]:
        outcomes = [Outcome(Unavailable(), LOCAL)] * len(wants)
        with contextlib.suppress(TimeoutError, Unavailable):
            async with asyncio.timeout(self.pool.redis.timeout_s):
                for _ in range(tries):
                    link = await self.pool.redis.link_to(shard.meta)
                    results = await work([want.item for want in wants])
                    outcomes = [
                        Outcome(_first_result(before.result, now), LOCAL)
                        for before, now in zip(outcomes, results, strict=True)
                    ]
                    done = {want.durability for want, now in zip(wants, results, strict=True) if not _failed(now)}
                    with contextlib.suppress(Unanswered):
                        reached = await self._reached(link, shard, done - {LOCAL})
                        return [
                            outcome._replace(durability=want.durability)
                            if want.durability in reached and not _failed(now)
                            else outcome
                            for want, outcome, now in zip(wants, outcomes, results, strict=True)
                        ]
        return outcomes

    async def _reached(self, link: Link, shard: Keys, wanted: Set[str]) -> Set[str]:
        """Returns which of the wanted durabilities hold for the changes made in the shard over the link. Raises
        Unanswered if that is unknown."""
        if not wanted:
            return wanted
        if await self.pool.redis.link_to(shard.meta) is not link:
            raise Unanswered  # the changes may have gone over either connection
        return await self._barrier_of(link).reached(shard, wanted)

    def _barrier_of(self, link: Link) -> Barrier:
        if link not in self._barriers:
            self._barriers = {each: barrier for each, barrier in self._barriers.items() if not each.lost}
            self._barriers[link] = Barrier(link, self._replicas, self._timeout_ms, self.pool.redis.meter)
        return self._barriers[link]

    def _count(self, wants: Sequence[Want], outcomes: Sequence[Outcome]) -> None:
        """Report to the meter which durabilities beyond `local` were wanted, and which were reached."""
        numbers: dict[tuple[str, str], int] = {}
        for want, outcome in zip(wants, outcomes, strict=True):
            if want.durability != LOCAL and not _failed(outcome.result):
                pair = want.durability, outcome.durability
                numbers[pair] = numbers.get(pair, 0) + 1
        for (wanted, reached), changes in numbers.items():
            self.pool.redis.meter.secured(wanted, reached, changes)


class DurablePool:
    """The changes of a pool (buckets/pool/pool.py), made durable. Serves one call: see `Durable.wanting`."""

    def __init__(self, durable: Durable, durabilities: Sequence[Durability], report: Report) -> None:
        self._durable = durable
        self._pool = durable.pool
        self._durabilities = durabilities
        self._report = report

    async def add(self, jobs: Sequence[NewJob], within: str = "") -> list[Added | JobQueueError]:
        """As `Pool.add`."""
        repeat = all(map(may_be_repeated, jobs))
        return await self._change([job.id for job in jobs], jobs, partial(self._pool.add, within=within), repeat)

    async def add_groups(
        self, groups: Sequence[Sequence[NewJob]], within: str = ""
    ) -> list[list[Added] | JobQueueError]:
        """As `Pool.add_groups`; each group has one durability."""
        repeat = all(may_be_repeated(job) for group in groups for job in group)
        return await self._change(
            [group[0].id for group in groups], groups, partial(self._pool.add_groups, within=within), repeat
        )

    async def finish(
        self,
        jobs: Sequence[tuple[str, int | None]],
        sent: Sent | None = None,
        within: str = "",
        *,
        settles: bool = False,
    ) -> list[str | JobQueueError]:
        """As `Pool.finish`, but never calls `sent`: pops use another connection, so nothing orders them after these."""
        work = partial(self._pool.finish, within=within, settles=settles)
        return await self._change([job_id for job_id, _ in jobs], jobs, work)

    async def delete(
        self, ids: Sequence[str], within: str = "", spares: Sequence[State] = ()
    ) -> list[str | JobQueueError]:
        """As `Pool.delete`."""
        return await self._change(ids, ids, partial(self._pool.delete, within=within, spares=spares))

    async def update(self, job_id: str, **changes: Any) -> Moved:
        """As `Pool.update`. It is never repeated: a delay would start over."""
        return await self._change_one(job_id, lambda: self._pool.update(job_id, **changes), repeat=False)

    async def change(self, name: str, change: Callable[[Pool], Awaitable[T]]) -> T:
        """Make a change for which the pool has no method, to the job or schedule with this id or name. `change` may be
        called twice."""
        return await self._change_one(name, lambda: change(self._pool))

    async def _change_one(self, job_id: str, change: Callable[[], Awaitable[T]], *, repeat: bool = True) -> T:
        async def work(_: object) -> Sequence[T | JobQueueError]:
            try:
                return [await change()]
            except JobQueueError as error:
                return [error]

        result: T | JobQueueError
        (result,) = await self._change([job_id], [job_id], work, repeat)
        if isinstance(result, JobQueueError):
            raise result
        return result

    async def _change(self, ids: Sequence[str], items: Sequence[Any], work: Work, repeat: bool = True) -> list[Any]:
        wants = [Want(*each) for each in zip(ids, self._durabilities, items, strict=True)]
        outcomes = await self._durable.change(wants, work, repeat=repeat)
        self._report([outcome.durability for outcome in outcomes])
        return [outcome.result for outcome in outcomes]


def _failed(result: Any) -> bool:
    return isinstance(result, JobQueueError)


def _first_result(before: Any, now: Any) -> Any:
    """The result to report for a change that was made twice: the second time usually finds what the first one did."""
    if _failed(before):
        return now
    if isinstance(now, list):
        return [_first_result(*each) for each in zip(before, now, strict=True)]
    return now if isinstance(now, Added) and now.result in ("created", "replaced") else before
