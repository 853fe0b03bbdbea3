"""Planning: what is to become of a schedule whose time has come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import islice

from buckets import NewJob, Plan, Schedule, Time, later_ms
from jobqueue.engine.new_jobs import new_copy, new_job
from jobqueue.engine.policies import Policies
from jobqueue.engine.schedules.definition import Definition, decoded
from jobqueue.engine.schedules.times import Times
from jobqueue.schema.params import ms

MOST_CAUGHT_UP = 1000
"""Occurrences that are made at most of those that could not be made in time."""
IN_TIME_MS = 60_000
_FIRST_LOOK_MS = 60_000  # how far back the latest times are sought at first
_STEPS = 50  # between two rests; a time takes up to 0.1 ms


class Planning:
    """Plans by the definitions of schedules, and the policies of their topics as they are then."""

    def __init__(self, policies: Callable[[], Policies]) -> None:
        self._policies = policies

    async def plan(self, schedule: Schedule, now: int) -> Plan:
        """What is due of a schedule at a time (ms since the epoch). Raises ValueError for a definition that it cannot
        read."""
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
    """The times from the first that is due until now for which an occurrence is to be made, in their order."""
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
    """The times after one until another. It rests, as many times take a while."""
    found: list[int] = []
    later = times.after(begin)
    while True:
        some = list(islice(later, _STEPS))
        found += [each for each in some if each <= end]
        if not some or some[-1] > end:
            return found
        await asyncio.sleep(0)


def copies_of(policies: Policies, definition: Definition, name: str) -> list[tuple[str, NewJob]]:
    """The jobs that an occurrence becomes, each with what its id has behind the time: one, or one in each topic of a
    virtual topic."""
    targets = policies.targets(definition.topic)
    add = definition.occurrence(name)
    if not targets:
        return [("", new_job(policies, add, name, definition.topic))]
    return [(f"@{topic}", new_copy(policies, add, name, topic)) for topic in targets]
