"""What is asked of topics, or of all that begin with a prefix: figures, listings, looks at jobs, purges."""

from __future__ import annotations

from buckets import Job, State, Topics, Walk
from buckets import Stats as Figures
from buckets.topics.within import reaches
from jobqueue.schema import inner


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
        prefix = command.within.removesuffix("*")
        names = await self.names(prefix, within) if command.topic is None else [command.topic]
        count = 0
        for name in names:
            purged = await self._walk.purge(name, state, begun=begun)
            count += purged.count
            while purged.next:
                purged = await self._walk.purge(name, state, purged.next)
                count += purged.count
        return count
