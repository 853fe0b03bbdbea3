"""The jobs that an operation may change, shard by shard in short steps, and the place where each step ends; which of
the jobs match the filter, and when a reschedule makes them due.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import NamedTuple

from buckets.job import Job, State, Tag, later_ms
from buckets.operations.store import Asked
from buckets.pages import Pages, chunks
from buckets.topics.topics import Topics
from buckets.topics.walk import Position, Sought, Times, Walk
from buckets.topics.within import is_pattern, reaches

_MOST_MS = 253_402_300_799_000  # the end of the year 9999


def matches(asked: Asked, job: Job) -> bool:
    """Whether an operation should change a job, given that its topic and state match. The job needs no body."""
    return _was_there(asked, job) and _fits(asked, job) and _is_to_move(asked, job)


def _was_there(asked: Asked, job: Job) -> bool:
    """Whether the job is as it was when the operation was planned, as far as its record shows."""
    if job.created > asked.begun or job.lease > asked.begun * 1000:
        return False
    # `next` is since when a job is dead or ready. If the filter has no state, a ready job matched while it was delayed,
    # too.
    is_new = job.state is State.DEAD or (job.state is State.READY and asked.filter.state is State.READY)
    return not is_new or job.next <= asked.begun


def _fits(asked: Asked, job: Job) -> bool:
    wanted = asked.filter
    dead = job.state is State.DEAD
    return (
        job.id.startswith(wanted.prefix)
        and (not wanted.cause or (dead and job.cause.name.lower() == wanted.cause))
        and wanted.reason.lower() in (job.reason or "").lower()
        and (not wanted.tag or wanted.tag in _tags(job))
        and _between(wanted.died_from, job.next if dead else None, wanted.died_to)
        and _between(wanted.due_from, due_of(job), wanted.due_to)
        and _between(wanted.created_from, job.created, wanted.created_to)
    )


def due_of(job: Job) -> int:
    """When a job falls due; for a delayed job, its next due time."""
    return job.next if job.state is State.DELAYED else job.due


def _tags(job: Job) -> list[str]:
    try:
        found = json.loads(job.optional.get(Tag.TAGS) or b"[]")
    except ValueError:
        return []
    return found if isinstance(found, list) else []


def _between(first: int | None, value: int | None, last: int | None) -> bool:
    if first is None and last is None:
        return True
    return value is not None and (first is None or first <= value) and (last is None or value <= last)


def _is_to_move(asked: Asked, job: Job) -> bool:
    """Returns False if the job is already due in the operation's target span, so that no job is moved twice."""
    if asked.at_ms is None:
        return True
    return not asked.at_ms <= due_of(job) <= asked.at_ms + asked.spread_ms


def new_due(asked: Asked, job: Job) -> int:
    """When a job is due after a reschedule, in ms since the epoch; 0 for other kinds."""
    if asked.shift_ms is not None:
        return min(max(due_of(job) + asked.shift_ms, 0), _MOST_MS)
    if asked.at_ms is not None:
        return asked.at_ms + later_ms(job.id, asked.spread_ms)
    return 0


_REST = 0.5  # seconds of rest for each second of work
_NAMES = 1000  # topic names matched at once


class Place(NamedTuple):
    """Where an operation is in a shard: after a position among the jobs of a topic in a state, or after all of these
    jobs if `position` is None."""

    topic: str
    state: int
    position: Position | None = None

    def write(self) -> str:
        """As text."""
        return json.dumps([self.topic, self.state, self.position and list(self.position)])


def read_place(text: str) -> Place | None:
    """Parse the text of a place. Returns None, the beginning, for an empty text."""
    if not text:
        return None
    topic, state, position = json.loads(text)
    return Place(topic, state, position and Position(*position))


class Step(NamedTuple):
    """What a step found: the jobs that match, how many jobs of the topics it met, how many index entries it looked at,
    and the place after the step."""

    jobs: list[Job]
    met: int
    looked: int
    place: Place


class Candidates:
    """Walks over the jobs of operations."""

    def __init__(self, topics: Topics, walk: Walk) -> None:
        self._topics = topics
        self._walk = walk

    async def steps(
        self, asked: Asked, shard: int, begin: Place | None, want: int, prefix: str = ""
    ) -> AsyncIterator[Step]:
        """The steps from a place on, with up to `want` jobs each; a step may find nothing. `prefix`: only jobs whose
        ids have this prefix are met."""
        pages = Pages(self._topics.pool.redis, rest=_REST)
        for topic in await self.topics(asked, shard):
            if begin and topic < begin.topic:
                continue
            at = begin if begin and topic == begin.topic else None
            counts = await pages.step(self.counts(asked, shard, topic))
            if not any(counts.values()):
                yield Step([], 0, 0, Place(topic, max(State)))
            for state in sorted(state for state in counts if counts[state] > 0):
                if at and (state < at.state or (state == at.state and at.position is None)):
                    continue
                position = at.position if at and state == at.state else None
                async for step in self._of_state(pages, asked, shard, Place(topic, state, position), want, prefix):
                    yield step

    async def _of_state(
        self, pages: Pages, asked: Asked, shard: int, place: Place, want: int, prefix: str
    ) -> AsyncIterator[Step]:
        topic, state, position = place
        first, last = _bounds(asked, State(state))
        back = asked.goes_back
        since = (None if last is None else last + 1) if back else first
        sought = Sought(topic, State(state), shard, since, prefix, back)
        times = Times(self._topics, topic)
        while True:
            page = await pages.look(self._walk.look(sought, position, times, want))
            position = None if _is_beyond(page.next, first, last, back) else page.next
            found = [job for job in page.jobs if matches(asked, job)]
            yield Step(found, len(page.jobs), page.looked, Place(topic, state, position))
            if position is None:
                return
            await pages.rest()  # while the jobs of this step are being changed

    async def topics(self, asked: Asked, shard: int) -> list[str]:
        """The topics of a shard that an operation reaches, in order."""
        wanted = asked.filter.topic
        known = [wanted] if wanted and not is_pattern(wanted) else await self._topics.names(shard)
        found: list[str] = []
        for some in chunks(known, _NAMES):
            found += [name for name in some if reaches(wanted, name) and reaches(asked.within, name)]
            await asyncio.sleep(0)
        return sorted(found)

    async def counts(self, asked: Asked, shard: int, topic: str) -> dict[State, int]:
        """By state, how many jobs of a topic a shard has in the operation's states, regardless of the rest of its
        filter."""
        counts = await self._topics.counts_in(shard, topic)
        return {state: counts[state] for state in asked.states}

    async def total(self, asked: Asked, shard: int, topic: str) -> int:
        """How many of the jobs in `counts` have times within the filter's bounds, to the minute or hour."""
        total = 0
        for state, number in (await self.counts(asked, shard, topic)).items():
            total += (
                number if _bounds(asked, state) == (None, None) else await self._bounded(asked, shard, topic, state)
            )
        return total

    async def _bounded(self, asked: Asked, shard: int, topic: str, state: State) -> int:
        first, last = _bounds(asked, state)
        if state is State.DEAD:
            key = self._topics.pool.keys[shard].dead(topic)
            low, high = "-inf" if first is None else first, "+inf" if last is None else last
            return int(await self._topics.pool.redis.read("ZCOUNT", key, low, high))
        return sum(
            jobs
            for (begin, width), jobs in await self._topics.bins(shard, topic)
            if (first is None or begin + width > first) and (last is None or begin <= last)
        )


def _bounds(asked: Asked, state: State) -> tuple[int | None, int | None]:
    """The filter's first and last time for the jobs in a state; None for no bound."""
    wanted = asked.filter
    if state is State.DELAYED:
        return wanted.due_from, wanted.due_to
    if state is State.DEAD:
        return wanted.died_from, wanted.died_to
    return None, None


def _is_beyond(position: Position | None, first: int | None, last: int | None, back: bool) -> bool:
    """Whether all jobs after a position are beyond the bounds."""
    if position is None or not position.at or position.state not in (State.DELAYED, State.DEAD):
        return position is None
    if back:
        return first is not None and float(position.at) < first
    return last is not None and float(position.at) > last
