"""The use cases of schedules: define, remove and list them, and plan the occurrences of one whose time has come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import islice
from typing import NamedTuple

from buckets import DurablePool, NewJob, Plan, Pool, Schedule, Schedules, Seen, Time, later_ms
from buckets.errors import AlreadyExists, NotFound
from buckets.topics.within import reaches
from jobqueue.engine.new_jobs import Policies, new_copy, new_job
from jobqueue.engine.schedules.definition import Definition, decoded, defined, encoded
from jobqueue.engine.schedules.times import Times
from jobqueue.errors import BadField
from jobqueue.schema import checks, params
from jobqueue.schema.fields import LONGEST_NAME
from jobqueue.schema.params import ms

MOST_CAUGHT_UP = 1000
"""The most occurrences that are made late because they could not be made in time."""
IN_TIME_MS = 60_000
_FIRST_LOOK_MS = 60_000  # how far back the first search for the latest times goes
_STEPS = 50  # times between two rests; computing one takes up to 0.1 ms


class Planning:
    """Plans occurrences by the definitions of schedules, and by the policies of their topics at that time."""

    def __init__(self, policies: Callable[[], Policies]) -> None:
        self._policies = policies

    async def plan(self, schedule: Schedule, now: int) -> Plan:
        """The plan of what is due in a schedule at `now` (ms since the epoch). Raises ValueError for a definition that
        it cannot read."""
        definition = decoded(schedule.definition)
        times = definition.times(schedule.start)
        due = await _due(times, schedule.next, now, definition.catch_up)
        wanted = [each for each in due if definition.catch_up != "none" or now - each <= IN_TIME_MS]
        jitter_ms = ms(definition.jitter)
        return Plan(
            next=next(times.after(max(now, schedule.next)), 0),
            times=[Time(each, each + later_ms(f"{schedule.name}@{each}", jitter_ms)) for each in wanted],
            topic=definition.topic,
            copies=copies_of(self._policies(), definition, schedule.name),
            skips=definition.overlap == "skip",
            missed=schedule.next if wanted[:1] != [schedule.next] else 0,
        )


async def _due(times: Times, first: int, now: int, catch_up: str) -> list[int]:
    """The times from `first` until `now` for which an occurrence must be made, in their order."""
    if next(times.after(first), now + 1) > now:
        return [first]
    most = MOST_CAUGHT_UP if catch_up == "all" else 1
    span = _FIRST_LOOK_MS
    while True:
        begin = max(first - 1, now - span)
        found = await _until(times, begin, now)
        if len(found) >= most or begin < first:
            return found[-most:]
        span *= 4


async def _until(times: Times, begin: int, end: int) -> list[int]:
    """The times after `begin` and up to `end`. Rests between them, because many times take a while."""
    found: list[int] = []
    later = times.after(begin)
    while True:
        some = list(islice(later, _STEPS))
        found += [each for each in some if each <= end]
        if not some or some[-1] > end:
            return found
        await asyncio.sleep(0)


def copies_of(policies: Policies, definition: Definition, name: str) -> list[tuple[str, NewJob]]:
    """The jobs that an occurrence becomes, each with the part of its id after the time: one job, or one in each topic
    of a virtual topic."""
    targets = policies.targets(definition.topic)
    add = definition.occurrence(name)
    if not targets:
        return [("", new_job(policies, add, name, definition.topic))]
    return [(f"@{topic}", new_copy(policies, add, name, topic)) for topic in targets]


_SHOWN_TIMES = 5
_LAST_MS = 9_999_999_999_999  # of a time with 13 digits


class SchedulesPlace(NamedTuple):
    """Where a listing of schedules continues."""

    shard: int
    cursor: int


class ScheduleView(NamedTuple):
    """A schedule in a listing, its definition, and its next times (ms since the epoch)."""

    schedule: Schedule
    definition: Definition
    times: list[int]


class Scheduling:
    """What the service can do with schedules."""

    def __init__(
        self,
        pool: Pool,
        pool_for: Callable[[Sequence[params.Schedule]], Pool | DurablePool],
        policies: Callable[[], Policies],
    ) -> None:
        """`pool_for`: returns the pool, or its methods made as durable as the commands require."""
        self.schedules = Schedules(pool)
        self._pool_for = pool_for
        self._policies = policies

    async def schedule(self, command: params.Schedule, within: str = "") -> tuple[str, int]:
        """Define a schedule; returns created, existing or replaced, and its next time (ms since the epoch, or 0 for
        never). Raises BadField, NoRoom, and AlreadyExists if a schedule out of reach has this name."""
        definition = defined(command)
        self._check_ids(command.name, definition)
        raw = encoded(definition)
        while True:
            seen = await self.schedules.see(command.name)
            if seen.schedule:
                if not reaches(within, _topic_of(seen.schedule)):
                    raise AlreadyExists("another schedule has this name")
                if seen.schedule.definition == raw:
                    return "existing", seen.schedule.next
            start_ms = seen.now if definition.start is None else round(definition.start * 1000)
            next_ms = 0 if definition.paused else _first(definition, start_ms, seen)
            result = await self._define(command, seen, raw, start_ms, next_ms)
            if result != "changed":
                return result, next_ms

    async def _define(self, command: params.Schedule, seen: Seen, raw: bytes, start_ms: int, next_ms: int) -> str:
        async def define(pool: Pool) -> str:
            return await Schedules(pool).define(command.name, seen, raw, start_ms, next_ms)

        pool = self._pool_for([command])
        return await (pool.change(command.name, define) if isinstance(pool, DurablePool) else define(pool))

    def _check_ids(self, name: str, definition: Definition) -> None:
        """Raises BadField if the id of a copy would be too long."""
        copies = copies_of(self._policies(), definition, name)
        longest = max(len(f"{name}@{_LAST_MS}{suffix}") for suffix, _ in copies)
        if longest > LONGEST_NAME:
            message = f"the ids of its occurrences would have {longest} characters with `@`, their time and their topic"
            raise BadField(f"name is too long: {message}; at most {LONGEST_NAME} are allowed", field="name")

    async def unschedule(self, name: str, within: str = "") -> int:
        """Remove a schedule; returns how many of its occurrences are live. Raises NotFound."""
        while True:
            _, schedule = await self.schedules.see(name)
            if schedule is None or not reaches(within, _topic_of(schedule)):
                raise NotFound("there is no schedule of this name")
            live = await self.schedules.undefine(schedule)
            if live is not None:
                return live

    async def page(self, command: params.Schedules, within: str = "") -> tuple[list[ScheduleView], str | None]:
        """A page of schedules and the cursor of the next one. Raises BadField for an invalid cursor."""
        place = checks.read(command.cursor, SchedulesPlace) or SchedulesPlace(0, 0)
        shards = len(self.schedules.pool.keys)
        if place.shard not in range(shards) or not 0 <= place.cursor < 1 << 64:
            raise checks.refusal()
        views: list[ScheduleView] = []
        found, cursor = await self.schedules.page(place.shard, place.cursor, command.pattern or "*")
        for schedule in found:
            view = _view(schedule)
            if view and reaches(within, view.definition.topic):
                views.append(view)
        following = SchedulesPlace(place.shard, cursor) if cursor else SchedulesPlace(place.shard + 1, 0)
        return views, checks.write(following if following.shard < shards else None)

    async def all(self, within: str = "") -> AsyncIterator[tuple[Schedule, Definition]]:
        """All schedules that are within reach and can be read, each once."""
        met: set[str] = set()
        for shard in range(len(self.schedules.pool.keys)):
            cursor = None
            while cursor != 0:
                found, cursor = await self.schedules.page(shard, cursor or 0, "*")
                for schedule in found:
                    definition = _definition_of(schedule)
                    if schedule.name not in met and definition and reaches(within, definition.topic):
                        met.add(schedule.name)
                        yield schedule, definition

    async def late(self, before_ms: int, most: int, within: str = "") -> dict[str, int]:
        """The next times (ms since the epoch) of schedules within reach, if they are before `before_ms`, by name. Stops
        after about `most` schedules."""
        late: dict[str, int] = {}
        for shard in range(len(self.schedules.pool.keys)):
            cursor = None
            while cursor != 0 and most > 0:
                found, cursor = await self.schedules.page(shard, cursor or 0, "*")
                most -= len(found)
                for schedule in found:
                    if 0 < schedule.next < before_ms and reaches(within, _topic_of(schedule)):
                        late[schedule.name] = schedule.next
        return late


def _first(definition: Definition, start_ms: int, seen: Seen) -> int:
    """The first time of a new definition, or 0 if there is none. Occurrences that an earlier definition made are not
    made again."""
    last = seen.schedule.last if seen.schedule else 0
    return next(definition.times(start_ms).after(max(seen.now, last)), 0)


def _definition_of(schedule: Schedule) -> Definition | None:
    """The definition of a schedule, or None if it cannot be read, which the log reports when its time comes."""
    try:
        definition = decoded(schedule.definition)
        definition.times(schedule.start)
    except ValueError:
        return None
    return definition


def _topic_of(schedule: Schedule) -> str:
    """The topic of a schedule, or empty if its definition cannot be read."""
    definition = _definition_of(schedule)
    return definition.topic if definition else ""


def _view(schedule: Schedule) -> ScheduleView | None:
    """The view of a schedule, or None if its definition cannot be read."""
    definition = _definition_of(schedule)
    if definition is None:
        return None
    later = islice(definition.times(schedule.start).after(schedule.next), _SHOWN_TIMES - 1)
    return ScheduleView(schedule, definition, [schedule.next, *later] if schedule.next else [])
