"""The commands that only dialects give. Each reads its parameters, makes one call of the engine and names the parts of
the answer, as its struct describes it; jobs stay as the engine read them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from buckets import Added
from buckets.errors import JobQueueError, Limited
from buckets.topics.within import both
from jobqueue.commands import native
from jobqueue.commands.answers import Answer, in_seconds, success
from jobqueue.commands.table import Handover, many_inner, one_inner
from jobqueue.engine.engine import Engine
from jobqueue.engine.new_jobs import Copy
from jobqueue.schema import inner


@many_inner
async def add(engine: Engine, commands: Sequence[inner.Add], handover: Handover) -> list[Answer]:
    """Keep jobs, those that are numbered under the next numbers."""
    results: list[Added | list[Copy] | JobQueueError] = []
    for within, some in groupby(commands, lambda command: command.within):
        results += await engine.add_numbered(list(some), within=both(within, handover.within))
    return [_added(command, result) for command, result in zip(commands, results, strict=True)]


def _added(command: inner.Add, result: Added | list[Copy] | JobQueueError) -> Answer:
    answer = native.added(command, result)
    if command.numbered and answer["success"]:
        answer["number"] = int((command.id or "").removeprefix("#"))
    return answer


@one_inner
async def pop(engine: Engine, command: inner.Pop, handover: Handover) -> Answer:
    """Reserve the next ready jobs, and number them."""
    handover.check(command)
    jobs, numbers = await engine.pop_numbered(command, handover.room, owner=handover.grant.owner)
    handover.reserved.extend(jobs)
    handover.take(jobs)
    return success(jobs=jobs, numbers=numbers)


@one_inner
async def take(engine: Engine, command: inner.Take, handover: Handover) -> Answer:
    """Reserve one job by its name."""
    handover.check(command)
    try:
        job = await engine.numbered.take(command, handover.within)
    except Limited:
        return success(job=None)
    handover.reserved.append(job)
    handover.take([job])
    return success(job=job)


@one_inner
async def finish(engine: Engine, command: inner.Finish, handover: Handover) -> Answer:
    """The job is done."""
    return success(id=command.id, state=await engine.numbered.finish(command, handover.within))


@one_inner
async def delete(engine: Engine, command: inner.Delete, handover: Handover) -> Answer:
    """Cancel a job."""
    return success(id=command.id, state="deleted", was=await engine.numbered.delete(command, handover.within))


@one_inner
async def touch(engine: Engine, command: inner.Touch, handover: Handover) -> Answer:
    """Restart the lease of a reserved job."""
    return success(
        id=command.id, state="reserved", until=in_seconds(await engine.numbered.touch(command, handover.within))
    )


@one_inner
async def release(engine: Engine, command: inner.Release, handover: Handover) -> Answer:
    """Give a reserved job back."""
    moved = await engine.numbered.release(command, engine.policies.default_backoff_ms, handover.within)
    return success(id=command.id, state=moved.state, due=in_seconds(moved.due))


@one_inner
async def bury(engine: Engine, command: inner.Bury, handover: Handover) -> Answer:
    """Move a reserved job to the dead letters."""
    return success(id=command.id, state=await engine.numbered.bury(command, handover.within))


@one_inner
async def kick(engine: Engine, command: inner.Kick, handover: Handover) -> Answer:
    """Make a dead letter ready again."""
    return success(id=command.id, state=await engine.numbered.kick(command, handover.within), count=1)


@one_inner
async def run(engine: Engine, command: inner.Run, handover: Handover) -> Answer:
    """Make a delayed job due now."""
    return success(id=command.id, state="ready", due=in_seconds(await engine.numbered.run(command, handover.within)))


@one_inner
async def get(engine: Engine, command: inner.Get, handover: Handover) -> Answer:
    """A job, or what is remembered of it."""
    handover.check(command)
    job = await engine.numbered.get(command, handover.within)
    handover.take([job])
    return success(job=job)


@one_inner
async def peek(engine: Engine, command: inner.Peek, handover: Handover) -> Answer:
    """Look at the first jobs of a topic in a state."""
    handover.check(command)
    jobs = await engine.listing.peek(command, handover.room)
    handover.take(jobs)
    return success(topic=command.topic, jobs=jobs, numbers=await engine.numbered.numbers(jobs, command.numbered))


@one_inner
async def stats(engine: Engine, command: inner.Stats, handover: Handover) -> Answer:
    """The figures of a topic, or of all that begin alike."""
    prefix = command.within.removesuffix("*")
    if command.each:
        return success(topics=await engine.listing.each(prefix, handover.within, command.waits))
    if command.topic is None:
        figures = await engine.listing.figures(prefix, handover.within)
        return success(figures=figures, known=True, paused_until=None)
    figures, status = await engine.stats(command.topic, handover.within, command.waits)
    assert status  # that of the topic
    return success(figures=figures, known=status.known, paused_until=status.paused.get(command.topic))


@one_inner
async def names(engine: Engine, command: inner.Names, handover: Handover) -> Answer:
    """The names of all topics that begin alike."""
    return success(names=await engine.listing.names(command.within.removesuffix("*"), handover.within))


@one_inner
async def counter(engine: Engine, command: inner.Counter, handover: Handover) -> Answer:
    """The last number."""
    return success(number=await engine.numbered.counter.last())


@one_inner
async def restore(engine: Engine, command: inner.Restore, handover: Handover) -> Answer:
    """Bring jobs back from the journal."""
    return success(id=command.id, count=await engine.restore(command, handover.within))


@one_inner
async def purge(engine: Engine, command: inner.Purge, handover: Handover) -> Answer:
    """Delete the jobs of a topic, or of all that begin alike."""
    return success(count=await engine.listing.purge(command, handover.within))
