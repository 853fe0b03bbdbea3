"""Creating occurrences: what this process does for schedules whose time has come, as reported by its timers."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import NamedTuple

from buckets.errors import JobQueueError, NoRoom
from buckets.job import NewJob
from buckets.pages import chunks
from buckets.pool.codec import Shape
from buckets.schedules.record import Schedule
from buckets.schedules.schedules import Schedules
from buckets.scripts import Value

log = logging.getLogger(__name__)

MOST_JOBS = 100  # that a script creates: takes a millisecond or two
_MOST_BYTES = 1 << 19  # of their bodies and options; each script also reads and writes the definition
_READ = 25  # schedules at a time: their records include bodies, and planning them takes 3 ms
_FULL_S = 1.0  # after Redis had no room, before waiting schedules are tried again


class Time(NamedTuple):
    """The time of an occurrence, which is part of its id, and when the job is due; in ms since the epoch."""

    ms: int
    due: int


class Plan(NamedTuple):
    """What to do for a schedule whose time has come."""

    next: int
    """The time after `times`, in ms since the epoch, or 0 if there is none."""
    times: Sequence[Time] = ()
    """The times of the occurrences to create, in their order."""
    topic: str = ""
    """The topic of the occurrences, for metrics."""
    copies: Sequence[tuple[str, NewJob]] = ()
    """The job of an occurrence, or one job for each topic of a virtual topic, each with the suffix that its id has
    after the time."""
    skips: bool = False
    """Whether an occurrence is skipped while the last one is delayed, ready or reserved."""
    missed: int = 0
    """The first time for which no occurrence was created, or 0 if there is none."""


Planner = Callable[[Schedule, int], Awaitable[Plan]]
"""Plans what is due in a schedule at a time (ms since the epoch). Raises ValueError for a definition that it cannot
read."""


class _Work(NamedTuple):
    """A schedule with its plan."""

    name: str
    schedule: Schedule | None
    plan: Plan
    shapes: Sequence[Shape] = ()
    """The shapes of the plan's copies."""
    rest: Plan | None = None
    """The rest of the plan, if it is too much for one script."""

    @property
    def jobs(self) -> int:
        return len(self.shapes) * len(self.plan.times)

    @property
    def size(self) -> int:
        """The bytes of the jobs to create."""
        body = len(self.plan.copies[0][1].body) if self.plan.copies else 0
        return len(self.plan.times) * sum(len(shape.front) + body for shape in self.shapes)


class Occurrences:
    """Creates the occurrences of a namespace's schedules.

    The schedules that the timers of a shard report are handled one batch after the other, so that thousands at once
    hold up nothing else in this process. Schedules that wait for room have a queue of their own, and use at most half
    of the time.
    """

    def __init__(self, schedules: Schedules, plan: Planner) -> None:
        self._schedules = schedules
        self._pool = schedules.pool
        self._plan = plan
        self._in_work: set[tuple[int, str]] = set()
        self._waiting: set[str] = set()  # schedules that found no room, which was logged
        self._full: set[int] = set()  # the shards whose Redis had no room at the last attempt
        self._unreadable: dict[str, int] = {}  # by name, the revisions that were logged
        self._turns: defaultdict[tuple[int, bool], asyncio.Lock] = defaultdict(asyncio.Lock)
        self._tasks: dict[asyncio.Task[None], bool] = {}  # whether each task is for waiting schedules

    def meet(self, shard: int, bucket: int, names: Sequence[str]) -> None:
        """Begin to create the occurrences of schedules that a bucket's timer has met; does not wait for that."""
        new = [name for name in names if (shard, name) not in self._in_work]
        for waits in (False, True):
            some = [name for name in new if (name in self._waiting) == waits]
            if some:
                self._in_work |= {(shard, name) for name in some}
                task = asyncio.create_task(self._meet(shard, bucket, some, waits), name="occurrences")
                self._tasks[task] = waits
                task.add_done_callback(self._tasks.pop)

    async def _meet(self, shard: int, bucket: int, names: Sequence[str], waits: bool) -> None:
        time = asyncio.get_running_loop().time
        try:
            async with self._turns[shard, waits]:
                begun = time()
                await self.make(shard, bucket, names)
                if waits:
                    await asyncio.sleep(_FULL_S if shard in self._full else time() - begun)
        except JobQueueError as error:  # the entries are met again
            log.warning("occurrences.failed", extra={"shard": shard, "error": str(error)})
        except Exception:
            log.exception("occurrences.failed", extra={"shard": shard})
        finally:
            self._in_work -= {(shard, name) for name in names}

    async def make(self, shard: int, bucket: int, names: Sequence[str]) -> None:
        """Create the occurrences that are due in these schedules, and set their next times. Occurrences for which there
        is no room are left until their timer meets the schedules again."""
        for some in chunks(names, _READ):
            now, found = await self._schedules.read(shard, some)
            works = [await self._work(name, each, now) for name, each in zip(some, found, strict=True)]
            left = [work for work in works if work]
            while left:
                batches = list(_scripts([_page(work) for work in left]))
                left = [rest for batch in batches for rest in await self._make(shard, bucket, batch)]

    async def _make(self, shard: int, bucket: int, works: Sequence[_Work]) -> list[_Work]:
        """Create what one script may create; returns the remaining work."""
        try:
            answers = await self._pool.call(
                "occur",
                shard,
                [value for work in works for value in self._arguments(work)],
                now=self._pool.clock.now(),
                bucket=self._pool.next_bucket(),
                met=bucket,
            )
        except NoRoom:
            for work in works:
                self._note_waiting(work, "NO_ROOM", told=shard in self._full)
                self._full.add(shard)
            return []
        self._full.discard(shard)
        left = []
        for work, (next_ms, *outcomes) in zip(works, answers, strict=True):
            if next_ms >= 0:
                self._report(work, [outcome.decode() for outcome in outcomes])
            if work.schedule and work.rest and next_ms == work.plan.next:
                left.append(_Work(work.name, work.schedule._replace(next=next_ms), work.rest, work.shapes))
        return left

    async def _work(self, name: str, schedule: Schedule | None, now: int) -> _Work | None:
        """The work for a schedule, or None if nothing can be done. If nothing is due, the work only corrects its
        entry."""
        if schedule is None or not 0 < schedule.next <= now:
            self._waiting.discard(name)
            return _Work(name, schedule, Plan(schedule.next if schedule else 0))
        try:
            plan = await self._plan(schedule, now)
            return _Work(name, schedule, plan, [self._pool.shape(job) for _, job in plan.copies])
        except Exception as error:  # an error in one schedule must not stop the others
            if self._unreadable.get(name) != schedule.revision:
                self._unreadable[name] = schedule.revision
                unexpected = not isinstance(error, ValueError)
                log.error("schedule.unreadable", extra={"schedule": name, "error": str(error)}, exc_info=unexpected)
            return None

    def _arguments(self, work: _Work) -> Iterator[Value]:
        """The arguments of occur.lua for a schedule."""
        plan, schedule = work.plan, work.schedule
        seen = (schedule.revision, schedule.next) if schedule else (0, 0)
        body = plan.copies[0][1].body if plan.copies else b""
        yield from (work.name, *seen, plan.next, int(plan.skips), len(plan.copies), len(plan.times), body)
        for (suffix, _), shape in zip(plan.copies, work.shapes, strict=True):
            yield from (suffix, shape.most_pending, shape.front)
        for time in plan.times:
            yield from time

    def _report(self, work: _Work, outcomes: Sequence[str]) -> None:
        plan, made = work.plan, outcomes.count("made")
        if made:
            for shape in work.shapes:
                self._pool.redis.meter.added(shape.topic, made)
        if plan.missed and outcomes[:1] != ["full"]:  # if full, the next plan decides what was missed
            log.warning("schedule.missed", extra={"schedule": work.name, "since": plan.missed / 1000, "made": made})
        for time, outcome in zip(plan.times, outcomes, strict=False):
            if outcome == "blocked":
                log.warning("schedule.blocked", extra={"schedule": work.name, "id": f"{work.name}@{time.ms}"})
            if outcome != "full":
                self._pool.redis.meter.occurred(plan.topic, "made" if outcome == "there" else outcome)
        if "full" in outcomes:
            self._note_waiting(work, "TOPIC_FULL", told=work.name in self._waiting)
        else:
            self._waiting.discard(work.name)

    def _note_waiting(self, work: _Work, code: str, *, told: bool) -> None:
        """Note that a schedule has to wait. This is logged once until the schedule continues; if Redis is full, for
        only one schedule of the shard."""
        if not told:
            log.warning("schedule.waits", extra={"schedule": work.name, "code": code})
        self._waiting.add(work.name)
        self._pool.redis.meter.occurred(work.plan.topic, "waiting")

    async def close(self) -> None:
        """Wait for the work in progress, but not for schedules that wait for room."""
        for task, waits in list(self._tasks.items()):
            if waits:
                task.cancel()
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)


def _page(work: _Work) -> _Work:
    """The part of the work that one script may do, with the rest in `rest`."""
    most, plan = MOST_JOBS // max(len(work.shapes), 1), work.plan
    if work.size > _MOST_BYTES:
        most = min(most, _MOST_BYTES * len(plan.times) // work.size)
    most = max(most, 1)
    if len(plan.times) <= most:
        return work
    rest = plan._replace(times=plan.times[most:], missed=0)
    return work._replace(plan=plan._replace(next=rest.times[0].ms, times=plan.times[:most]), rest=rest)


def _scripts(works: Sequence[_Work]) -> Iterator[list[_Work]]:
    """Split works into the batches that one script may handle."""
    some: list[_Work] = []
    jobs = size = 0
    for work in works:
        jobs, size = jobs + max(work.jobs, 1), size + work.size
        if some and (jobs > MOST_JOBS or size > _MOST_BYTES):
            yield some
            some, jobs, size = [], max(work.jobs, 1), work.size
        some.append(work)
    if some:
        yield some
