"""The numbers by which dialects name jobs, and topics by their prefixes.

A number names the job `#<number>`; where the job must be in one topic, then the copy of a virtual topic's job there,
`#<number>@<topic>`; then the job that the number is an alias of.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence

from buckets import LARGEST_NUMBER, Job, Numbers, Pool, State, Topics, Walk
from buckets import Stats as Figures
from buckets.topics.within import reaches
from jobqueue.schema import inner

MOST_TRIES = 88
"""How often a job may be given a number; the last of them follow large gaps."""
_SINGLE_TRIES = 64  # then 64 numbers are skipped, 128, … up to 2^29
_NUMBERED = re.compile(r"#([1-9][0-9]{0,9})(?:@(.*))?", re.S)


def id_of(number: int) -> str:
    """The id of a job that was added under a number."""
    return f"#{number}"


def number_of(job: Job, *, also_copies: bool) -> int | None:
    """The number that a job was added under; None for a foreign job. `also_copies`: of a virtual topic's job, too."""
    match = _NUMBERED.fullmatch(job.id)
    if match is None or int(match[1]) > LARGEST_NUMBER:
        return None
    is_own = match[2] is None or (also_copies and match[2] == job.topic)
    return int(match[1]) if is_own else None


class Numbered:
    """The numbers of the jobs of a namespace."""

    def __init__(self, pool: Pool) -> None:
        self.counter = Numbers(pool)

    async def ids(self, name: str, within: str) -> AsyncIterator[str]:
        """The ids that the name `#<number>` may stand for, the first that exists being it. `within`: the topic that the
        job must be in, or, with a `*` at its end, how its topic must begin; empty: any."""
        yield name
        if within and not within.endswith("*"):
            yield f"{name}@{within}"
        aliased = await self.counter.resolve(int(name.removeprefix("#")))
        if aliased is not None:
            yield aliased

    async def assign(self, commands: Sequence[inner.Add], tries: int) -> None:
        """Give new jobs the next numbers. `tries`: how often other jobs had those that they got before. Many in a row
        have them where the counter begins again among live jobs; there, more and more numbers are skipped."""
        if not commands:
            return
        if tries >= _SINGLE_TRIES:
            await self.counter.skip(64 << (tries - _SINGLE_TRIES))
        for command, number in zip(commands, await self.counter.some(len(commands)), strict=True):
            command.id, command.if_exists = id_of(number), "reject"

    async def numbers(self, jobs: Sequence[Job], which: str) -> list[int]:
        """A number of each job, as `inner.Pop.numbered` says; each foreign job gets a new one."""
        if not which:
            return []
        own = [number_of(job, also_copies=which == "copies") for job in jobs]
        foreign = [job for job, number in zip(jobs, own, strict=True) if number is None]
        ends = [(job.id, job.next if job.state is State.RESERVED else 0) for job in foreign]
        new = iter(await self.counter.aliases(ends) if ends else ())
        return [next(new) if number is None else number for number in own]


class Listing:
    """The topics of a namespace by their prefixes."""

    def __init__(self, topics: Topics, walk: Walk) -> None:
        self._topics = topics
        self._walk = walk

    async def names(self, prefix: str, within: str = "") -> list[str]:
        """The names of all topics that begin with the prefix, and are within, in no particular order."""
        return [name for name in await self._topics.beginning(prefix) if reaches(within, name)]

    async def figures(self, prefix: str, within: str = "") -> Figures:
        """The sums of all topics that begin with the prefix."""
        return await self._topics.stats(prefix=prefix, within=within)

    async def each(self, prefix: str, within: str = "", waits: int = 0) -> dict[str, Figures]:
        """The figures of each topic that begins with the prefix and is within; `waits` as in inner.Stats."""
        return await self._topics.each(prefix, within, waits)

    async def peek(self, command: inner.Peek, room: int) -> list[Job]:
        """The first jobs of a topic in a state (up to `room` bytes of them)."""
        state, jobs = State[command.state.upper()], list[Job]()
        there = (await self._topics.counts(command.topic))[state.word]
        wanted, place = min(command.count, there), None
        while len(jobs) < wanted and (room > 0 or not jobs):
            page = await self._walk.peek(command.topic, state, place, count=wanted - len(jobs), room=room)
            jobs += page.jobs
            room -= sum(len(job.raw) for job in page.jobs)
            place = page.next
            if place is None:
                break
        return jobs

    async def purge(self, command: inner.Purge, within: str = "") -> int:
        """Delete jobs until all that existed at the beginning are gone; returns how many. Later ones stay."""
        state = None if command.state is None else State[command.state.upper()]
        begun = await self._walk.newest_ms()
        names = await self.names(command.prefix, within) if command.topic is None else [command.topic]
        count = 0
        for name in names:
            purged = await self._walk.purge(name, state, begun=begun)
            count += purged.count
            while purged.next:
                purged = await self._walk.purge(name, state, purged.next)
                count += purged.count
        return count
