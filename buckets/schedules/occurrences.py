"""Making occurrences: what this process does for the schedules whose time has come, as its timers report it."""

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

MOST_JOBS = 100  # that a script makes: a millisecond or two
_MOST_BYTES = 1 << 19  # of their bodies and options; the definition is read and written with them
_READ = 25  # schedules at a time: records have their bodies, and planning them takes 3 ms
_FULL_S = 1.0  # after Redis had no room, before those that wait are tried again


class Time(NamedTuple):
    """The time of an occurrence, which its id has, and when the job is due; ms since the epoch."""

    ms: int
    due: int


class Plan(NamedTuple):
    """What is to become of a schedule whose time has come."""

    next: int
    """The time behind `times`, ms since the epoch; 0: there is none."""
    times: Sequence[Time] = ()
    """Of the occurrences to make, in their order."""
    topic: str = ""
    """Where they are added, for figures."""
    copies: Sequence[tuple[str, NewJob]] = ()
    """The job of an occurrence, or one for each topic of a virtual topic, and what its id has behind the time."""
    skips: bool = False
    """Whether one is skipped while the last is delayed, ready or reserved."""
    missed: int = 0
    """The first time that nobody made an occurrence at; 0: there is none."""


Planner = Callable[[Schedule, int], Awaitable[Plan]]
"""Plans what is due of a schedule at a time (ms since the epoch). Raises ValueError for a definition that it cannot
read."""


class _Work(NamedTuple):
    """A schedule with its plan."""

    name: str
    schedule: Schedule | None
    plan: Plan
    shapes: Sequence[Shape] = ()
    """Of the plan's copies."""
    rest: Plan | None = None
    """What follows, if one script must not make all."""

    @property
    def jobs(self) -> int:
        return len(self.shapes) * len(self.plan.times)

    @property
    def size(self) -> int:
        """Bytes of the jobs to be made."""
        body = len(self.plan.copies[0][1].body) if self.plan.copies else 0
        return len(self.plan.times) * sum(len(shape.front) + body for shape in self.shapes)


class Occurrences:
    """Makes the occurrences of a namespace's schedules.

    What the timers of a shard report is worked off in turn, so that thousands at once hold up nothing else in this
    process. Those that wait for room have a turn of their own, and at most half of the time.
    """

    def __init__(self, schedules: Schedules, plan: Planner) -> None:
        self._schedules = schedules
        self._pool = schedules.pool
        self._plan = plan
        self._in_work: set[tuple[int, str]] = set()
        self._waiting: set[str] = set()  # those that found no room, and told of it
        self._full: set[int] = set()  # the shards whose Redis had no room for the last ones
        self._unreadable: dict[str, int] = {}  # the revisions that were told of
        self._turns: defaultdict[tuple[int, bool], asyncio.Lock] = defaultdict(asyncio.Lock)
        self._tasks: dict[asyncio.Task[None], bool] = {}  # whether each is for schedules that wait

    def meet(self, shard: int, bucket: int, names: Sequence[str]) -> None:
        """Begin to make the occurrences of schedules that a bucket's timer has met; does not wait for it."""
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
        """Make what is due of these schedules, and set their next times. What there is no room for is left for the next
        time that their timer meets them."""
        for some in chunks(names, _READ):
            now, found = await self._schedules.read(shard, some)
            works = [await self._work(name, each, now) for name, each in zip(some, found, strict=True)]
            left = [work for work in works if work]
            while left:
                batches = list(_scripts([_page(work) for work in left]))
                left = [rest for batch in batches for rest in await self._make(shard, bucket, batch)]

    async def _make(self, shard: int, bucket: int, works: Sequence[_Work]) -> list[_Work]:
        """Make what one script may make; returns what follows."""
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
        """What there is to do for a schedule; None: nothing can be done. Where nothing is due, its entry is put
        right."""
        if schedule is None or not 0 < schedule.next <= now:
            self._waiting.discard(name)
            return _Work(name, schedule, Plan(schedule.next if schedule else 0))
        try:
            plan = await self._plan(schedule, now)
            return _Work(name, schedule, plan, [self._pool.shape(job) for _, job in plan.copies])
        except Exception as error:  # whatever is wrong with one, the others go on
            if self._unreadable.get(name) != schedule.revision:
                self._unreadable[name] = schedule.revision
                unexpected = not isinstance(error, ValueError)
                log.error("schedule.unreadable", extra={"schedule": name, "error": str(error)}, exc_info=unexpected)
            return None

    def _arguments(self, work: _Work) -> Iterator[Value]:
        """What occur.lua takes for a schedule."""
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
        if plan.missed and outcomes[:1] != ["full"]:  # else the next plan decides what was missed
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
        """A schedule has to wait, which is logged once until it goes on; where Redis is full, for one of its shard."""
        if not told:
            log.warning("schedule.waits", extra={"schedule": work.name, "code": code})
        self._waiting.add(work.name)
        self._pool.redis.meter.occurred(work.plan.topic, "waiting")

    async def close(self) -> None:
        """Wait for the work in progress, but not for room."""
        for task, waits in list(self._tasks.items()):
            if waits:
                task.cancel()
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)


def _page(work: _Work) -> _Work:
    """As much as one script may make."""
    most, plan = MOST_JOBS // max(len(work.shapes), 1), work.plan
    if work.size > _MOST_BYTES:
        most = min(most, _MOST_BYTES * len(plan.times) // work.size)
    most = max(most, 1)
    if len(plan.times) <= most:
        return work
    rest = plan._replace(times=plan.times[most:], missed=0)
    return work._replace(plan=plan._replace(next=rest.times[0].ms, times=plan.times[:most]), rest=rest)


def _scripts(works: Sequence[_Work]) -> Iterator[list[_Work]]:
    """Split them into what one script may take."""
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
