"""Pops of the job pool: concurrent pops share a script, and jobs whose caller is gone are returned.

How a pop asks the shards is in buckets/pool/pop_search.py; waiting for jobs is in buckets/waiting.

A pop goes by the lanes (lanes.py, several_lanes.py). What these do not do takes the complete way, a search.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, cast

from buckets.clock import Clock
from buckets.errors import JobQueueError
from buckets.job import Job, State
from buckets.keys import shard_of
from buckets.pool.lanes import Lane
from buckets.pool.limits import Granted
from buckets.pool.pop_search import Ask, Popped, PopSearch, ask_for
from buckets.pool.ready_shards import ReadyShards
from buckets.pool.several_lanes import Lanes
from buckets.record import unpack, unpack_all
from buckets.redis.client import Redis
from buckets.scripts import Value
from buckets.shards import Item, Shards

log = logging.getLogger(__name__)

_FINISHED = State.FINISHED


class Popping(Shards):
    """A namespace whose jobs can be popped and returned; the part of `Pool` that is about deliveries."""

    lanes: Lane | Lanes
    """The fast path of adds, finishes and pops; made by `Pool`."""

    def __init__(self, redis: Redis, namespace: str, shards: int, buckets: int, clock: Clock | None = None) -> None:
        super().__init__(redis, namespace, shards, buckets, clock)
        self.ready_shards = ReadyShards(shards)
        self._turn = itertools.count(random.randrange(buckets))  # round robin; each process starts elsewhere
        self._late: set[asyncio.Task[Any]] = set()
        self._is_abandoned = False  # whether the caller of a pop was gone before the reply came

    def next_bucket(self) -> int:
        """The next bucket in turn."""
        return next(self._turn) % self.buckets

    async def pop(
        self,
        topics: Sequence[str],
        count: int = 1,
        *,
        ttr_ms: int | None = None,
        worker: str = "",
        room: int = 8 << 20,
        by_priority: bool = False,
    ) -> Popped:
        """Reserve up to `count` ready jobs of the topics, which are tried in order; at most `room` bytes of jobs, but
        at least one job. `by_priority`: the jobs with the highest priority in any of the topics come first; within a
        priority, the order of topics decides. This applies within a shard; shards are asked one after the other.

        If the caller is cancelled while Redis handles the pop, the reserved jobs are returned.
        """
        ask = ask_for(topics, ttr_ms=ttr_ms, worker=worker, room=room, by_priority=by_priority)
        popped = await self._pop_asked(ask, count)
        self.report_delivered(popped.jobs)
        return popped

    async def _pop_asked(self, ask: Ask, count: int) -> Popped:
        """Pop by the lanes, if they accept the pop; otherwise by a search."""
        popped = await self._popped_by_lane(ask, count)
        if isinstance(popped, JobQueueError):
            raise popped
        return await self._search(ask, count) if popped is None else popped

    def look(self, ask: Ask, count: int, done: Callable[[Popped | JobQueueError], None]) -> None:
        """Pop once, without a task if the lanes are open. `done` is called with the outcome later; it must report the
        jobs as delivered or, if they are no longer wanted, return them."""

        def took(outcome: Any) -> None:
            if outcome is None:
                self._later(self._look(ask, count, done))
            else:
                done(outcome)

        if not self.lanes.pop(ask, count, took):
            took(None)

    async def _look(self, ask: Ask, count: int, done: Callable[[Popped | JobQueueError], None]) -> None:
        outcome: Popped | JobQueueError
        try:
            outcome = await self._search(ask, count)
        except JobQueueError as error:
            outcome = error
        except Exception as error:
            outcome = JobQueueError()
            outcome.__cause__ = error
        done(outcome)

    async def take(self, job_id: str, *, ttr_ms: int | None = None, worker: str = "", within: str = "") -> Job:
        """Reserve one job by its id: a delayed, ready or dead job, even if its topic is paused. A delayed job becomes
        due now, as by `run`; a dead job is treated as by `kick`. Raises NotFound, Reserved, WrongState, Limited.

        As with `pop`, the job of a caller that was cancelled meanwhile is returned.
        """

        def orphan(reply: Any) -> None:
            if isinstance(reply, bytes):  # otherwise the script failed
                self.unpop_later([unpack(job_id, reply)])

        limits = await self._limits_for(job_id, within) if self.limits else []
        try:
            record = await self.call(
                "take",
                shard_of(job_id, len(self.keys)),
                limits,
                orphan=orphan,
                now=self.clock.now(),
                id=job_id,
                bucket=self.next_bucket(),
                ttr="" if ttr_ms is None else ttr_ms,
                worker=worker,
                within=within,
            )
        except asyncio.CancelledError:
            self._is_abandoned = True
            raise
        job = unpack(job_id, record)
        self.report_delivered([job])
        return job

    async def _limits_for(self, job_id: str, within: str) -> list[Value]:
        """The limits that may apply to a job, as arguments of the script, which finds out the job's topic. With several
        shards, a permit is taken in advance for the topic that the job has now."""
        if len(self.keys) == 1:
            return [value for topic, limit in self.limits.items() for value in (topic, *limit.arguments)]
        granted = {topic: Granted(0) for topic, limit in self.limits.items() if limit.rate}
        topic = await self._topic_of(job_id, within)
        if topic in granted:
            granted[topic] = Granted((await self.take_permits(topic, 1))[0])
        return [value for topic, each in granted.items() for value in (topic, *each.arguments)]

    async def _topic_of(self, job_id: str, within: str) -> str:
        """The topic of a job, or empty if there is no such job within reach."""
        raw = await self.one("get", job_id, within=within)
        try:
            return unpack(job_id, raw).topic if raw is not None else ""
        except (ValueError, UnicodeDecodeError, IndexError):
            return ""  # not a record: the script sets the data aside

    def report_delivered(self, jobs: Sequence[Job]) -> None:
        """Report to the meter the jobs that reached their caller."""
        meter = self.redis.meter
        late_us: dict[str, list[int]] = {}
        for job in jobs:
            kind = job.kind
            topic = kind.topic
            if kind.deliveries != 1:
                meter.redelivered(topic, 1)
            else:
                late = job.lease - 1000 * job.due
                if topic not in late_us:
                    late_us[topic] = []
                late_us[topic].append(late if late > 0 else 0)
            if kind.state is _FINISHED:
                meter.finished(topic, 1)
        for topic, late_ones in late_us.items():
            meter.delivered(topic, late_ones)

    async def _search(self, ask: Ask, count: int) -> Popped:
        popped = Popped()
        try:
            await self._pop(popped, ask, count)
        except asyncio.CancelledError:
            self._is_abandoned = True
            self.unpop_later(popped.jobs)
            raise
        return popped

    async def _popped_by_lane(self, ask: Ask, count: int) -> Popped | JobQueueError | None:
        """Pop by the lane. Returns None if the lane does not accept the pop, or has not done it."""
        popping: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def done(outcome: Any) -> None:
            if not popping.done():
                popping.set_result(outcome)
            elif isinstance(outcome, Popped):  # its caller is gone
                self.unpop_later(outcome.jobs)

        if not self.lanes.pop(ask, count, done):
            return None
        try:
            return cast(Popped | JobQueueError | None, await popping)
        except asyncio.CancelledError:
            if popping.done() and not popping.cancelled():
                done(popping.result())  # the result arrived on the turn of the cancellation
            self.lanes.withdraw(done)
            raise

    async def _pop(self, popped: Popped, ask: Ask, count: int) -> None:
        """Fill `popped`. Jobs that arrive after the caller was cancelled are returned."""
        bucket = self.next_bucket()
        search = PopSearch(self, self.ready_shards, ask, count, bucket, self._give_back_reply, popped)
        if len(self.keys) == 1:
            await search.in_one()
        else:
            await search.in_many()
            self._is_abandoned |= search.left_behind

    def _give_back_reply(self, reply: Any) -> None:
        """Return the jobs in a script's reply whose caller is gone."""
        if isinstance(reply, list):  # otherwise the script failed
            self.unpop_later(unpack_all(reply[3:]))

    async def _give_back(self, jobs: Sequence[Job], then: Callable[[], None] | None) -> None:
        results = await self.unpop(jobs)
        kept = sum(isinstance(result, JobQueueError) for result in results)
        if kept:  # they come back at the end of their TTR
            log.warning("jobs.kept", extra={"jobs": kept})
        if then:
            then()

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` in the background; `close` waits for it."""
        task = asyncio.create_task(work)
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    def unpop_later(self, jobs: Sequence[Job], then: Callable[[], None] | None = None) -> None:
        """As `unpop`, in the background; `then` is called when the jobs are returned."""
        if jobs:
            self._later(self._give_back(jobs, then))

    async def unpop(self, jobs: Sequence[Job]) -> list[int | JobQueueError]:
        """Undo deliveries that reached no caller: the jobs go to the front of their lists, and the attempts do not
        count. The result has, from the last job to the first, 1 for each job that was returned and 0 for each that was
        not.

        A job with a newer lease stays as it is. A job that is delivered at most once is lost.
        """
        last_first = jobs[::-1]  # each job goes in front of its successors, across all scripts of a large batch
        items = [Item(job.id, (job.id, job.lease)) for job in last_first]
        return await self.each("unpop", items, now=self.clock.now())

    async def close(self) -> None:
        """Wait for the pops in progress, and until the jobs that reached no caller have been returned."""
        await self.lanes.close()
        if self._is_abandoned:
            with contextlib.suppress(JobQueueError):
                for server in await self.redis.servers():
                    await server.read("PING")  # answered after all earlier requests
        while self._late:
            await asyncio.gather(*self._late, return_exceptions=True)
