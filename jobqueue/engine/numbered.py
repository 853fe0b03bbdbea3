"""The numbers by which dialects name jobs.

A number names the first of these jobs that exists: `#<number>`; if the job must be in one topic, the copy of a virtual
topic's job there, `#<number>@<topic>`; the job for which the number is an alias.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence

from buckets import LARGEST_NUMBER, Job, Numbers, Pool, State
from jobqueue.schema import inner

MOST_TRIES = 88
"""How many numbers are tried for a job; the last ones follow large gaps."""
_SINGLE_TRIES = 64  # then 64 numbers are skipped, 128, … up to 2^29
_NUMBERED = re.compile(r"#([1-9][0-9]{0,9})(?:@(.*))?", re.S)


def id_of(number: int) -> str:
    """The id of a job that was added under a number."""
    return f"#{number}"


def number_of(job: Job, *, also_copies: bool) -> int | None:
    """The number that a job was added under, or None for any other job. `also_copies`: True to accept copies of a
    virtual topic's job, too."""
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
        """The ids that the name `#<number>` may stand for; the first that exists is the job. `within`: the topic that
        the job must be in, or, with a `*` at its end, how its topic must begin, or empty for any topic."""
        yield name
        if within and not within.endswith("*"):
            yield f"{name}@{within}"
        aliased = await self.counter.resolve(int(name.removeprefix("#")))
        if aliased is not None:
            yield aliased

    async def assign(self, commands: Sequence[inner.Add], tries: int) -> None:
        """Give new jobs the next numbers. `tries`: how often the numbers that they got before belonged to other jobs.
        Many consecutive numbers do if the counter begins again among live jobs; then more and more numbers are
        skipped."""
        if not commands:
            return
        if tries >= _SINGLE_TRIES:
            await self.counter.skip(64 << (tries - _SINGLE_TRIES))
        for command, number in zip(commands, await self.counter.some(len(commands)), strict=True):
            command.id, command.if_exists = id_of(number), "reject"

    async def numbers(self, jobs: Sequence[Job], which: str) -> list[int]:
        """A number for each job, as `inner.Pop.numbered` says; a job that was not added under a number gets a new
        one."""
        if not which:
            return []
        own = [number_of(job, also_copies=which == "copies") for job in jobs]
        foreign = [job for job, number in zip(jobs, own, strict=True) if number is None]
        ends = [(job.id, job.next if job.state is State.RESERVED else 0) for job in foreign]
        new = iter(await self.counter.aliases(ends) if ends else ())
        return [next(new) if number is None else number for number in own]
