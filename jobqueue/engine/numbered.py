"""Commands of dialects: on one job that is named by its id or by a number, and on all topics that begin with a prefix.

A number names the job `#<number>`; where the job must be in one topic, then the copy of a virtual topic's job there,
`#<number>@<topic>`; then the job that the number is an alias of.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

from buckets import LARGEST_NUMBER, DurablePool, Job, Moved, Numbers, Pollers, Pool, State, Topics, Walk
from buckets import Stats as Figures
from buckets.errors import JobQueueError, NotFound
from buckets.topics.within import both, reaches
from jobqueue.access.caller import CALLER
from jobqueue.schema import inner
from jobqueue.schema.params import ms_or_none

MOST_TRIES = 88
"""How often a job may be given a number; the last of them follow large gaps."""
_SINGLE_TRIES = 64  # then 64 numbers are skipped, 128, … up to 2^29
_NUMBERED = re.compile(r"#([1-9][0-9]{0,9})(?:@(.*))?", re.S)

T = TypeVar("T")


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


def _word(result: str | JobQueueError) -> str:
    if isinstance(result, JobQueueError):
        raise result
    return result


class Numbered:
    """The jobs of a namespace by their ids and numbers. `scope`: within which topics the caller may act on jobs at all,
    besides what its command says (`within`); empty: any."""

    def __init__(self, pool: Pool, pollers: Pollers, secured: Callable[[], Pool | DurablePool]) -> None:
        """`secured`: returns the pool whose changes have the default durability, as native ones without their own."""
        self._pool = pool
        self._pollers = pollers
        self._secured = secured
        self.counter = Numbers(pool)

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

    async def _ids(self, name: inner.Name, within: str) -> AsyncIterator[str]:
        """The ids that a name may stand for, the first that exists being it."""
        if isinstance(name, str):
            yield name
            return
        yield id_of(name)
        if within and not within.endswith("*"):
            yield f"{id_of(name)}@{within}"
        aliased = await self.counter.resolve(name)
        if aliased is not None:
            yield aliased

    async def _first(self, name: inner.Name, within: str, work: Callable[[str], Awaitable[T]]) -> T:
        """The result of the work on the job of this name. Raises what the work does, and NotFound."""
        missing = NotFound()
        async for job_id in self._ids(name, within):
            try:
                return await work(job_id)
            except NotFound as error:
                missing = error if error.state else missing
        raise missing

    async def take(self, command: inner.Take, scope: str = "") -> Job:
        """Reserve a delayed, ready or dead job. Raises NotFound, Reserved, WrongState."""
        worker, ttr_ms = command.worker or "", ms_or_none(command.ttr)

        async def take(job_id: str) -> Job:
            return await self._pool.take(job_id, ttr_ms=ttr_ms, worker=worker, within=both(command.within, scope))

        job = await self._first(command.id, command.within, take)
        self._pollers.end(self._pollers.begin(worker, CALLER.get(), [job.topic]), [job])
        return job

    async def finish(self, command: inner.Finish, scope: str = "") -> str:
        """End a job; returns its new state: finished or, where it settles, deleted. Raises NotFound, NotReserved,
        StaleLease."""
        return await self._first(command.id, command.within, lambda job_id: self._finish(job_id, command, scope))

    async def _finish(self, job_id: str, command: inner.Finish, scope: str) -> str:
        end, within, settles = (job_id, command.lease), both(command.within, scope), command.settles
        if within or settles:
            state = await self._secured().finish_within(*end, within, settles=settles)
        else:
            state = _word((await self._secured().finish([end]))[0])  # which shares a script with others
        self._pollers.finished([end], [state])
        return state

    async def delete(self, command: inner.Delete, scope: str = "") -> str:
        """Cancel a job, unless it is in a state to spare; returns the state that it was in. Raises NotFound, Reserved,
        WrongState."""
        spares = [State[word.upper()] for word in command.spares]

        async def delete(job_id: str) -> str:
            return await self._secured().delete_within(job_id, both(command.within, scope), spares)

        return await self._first(command.id, command.within, delete)

    async def touch(self, command: inner.Touch, scope: str = "") -> int:
        """Restart the lease; returns when it ends, in ms. Raises NotFound, NotReserved, StaleLease."""
        ttr_ms = ms_or_none(command.ttr)

        async def touch(job_id: str) -> int:
            return await self._pool.touch(job_id, command.lease, ttr_ms, both(command.within, scope))

        return await self._first(command.id, command.within, touch)

    async def release(self, command: inner.Release, ladder_ms: Sequence[int], scope: str = "") -> Moved:
        """Give a job back; one without a back-off of its own, by this ladder. Raises NotFound, NotReserved,
        StaleLease."""

        async def release(job_id: str) -> Moved:
            return await self._pool.release(
                job_id,
                command.lease,
                delay_ms=ms_or_none(command.delay),
                counts=command.attempt is not False,
                reason=command.reason or "",
                ladder_ms=ladder_ms,
                note=command.note,
                priority=command.priority,
                within=both(command.within, scope),
            )

        return await self._first(command.id, command.within, release)

    async def bury(self, command: inner.Bury, scope: str = "") -> str:
        """Move a reserved job to the dead letters; returns its new state. Raises NotFound, NotReserved, StaleLease."""

        async def bury(job_id: str) -> str:
            return await self._pool.bury(
                job_id, command.lease, command.reason or "", note=command.note, within=both(command.within, scope)
            )

        return await self._first(command.id, command.within, bury)

    async def kick(self, command: inner.Kick, scope: str = "") -> str:
        """Make a dead letter ready again; returns its state. Raises NotFound, WrongState."""
        return await self._first(
            command.id, command.within, lambda job_id: self._pool.kick_one(job_id, both(command.within, scope))
        )

    async def run(self, command: inner.Run, scope: str = "") -> int:
        """Make a delayed job due now; returns its due time in ms. Raises NotFound, TooLate, Reserved, WrongState."""
        return await self._first(
            command.id, command.within, lambda job_id: self._pool.run(job_id, both(command.within, scope))
        )

    async def get(self, command: inner.Get, scope: str = "") -> Job:
        """A job or its tombstone. Raises NotFound."""

        async def get(job_id: str) -> Job:
            job = await self._pool.get(job_id, both(command.within, scope))
            if job is None:
                raise NotFound
            return job

        return await self._first(command.id, command.within, get)


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
