"""The commands that only dialects can send. Each reads its parameters, makes one call to the engine and names the parts
of the answer, as its struct describes; jobs stay as the engine read them.
"""

from __future__ import annotations

from collections.abc import Sequence

from buckets import Added, State
from buckets.errors import JobQueueError, Limited
from jobqueue.commands import native
from jobqueue.commands.answers import Answer, success
from jobqueue.commands.table import ONE, Handover, many_inner, one_inner
from jobqueue.engine.engine import Engine
from jobqueue.engine.new_jobs import Copy
from jobqueue.schema import inner


@many_inner
async def add(engine: Engine, commands: Sequence[inner.Add], handover: Handover) -> list[Answer]:
    """Add jobs; those that are `numbered` get the next numbers."""
    results = await engine.add_numbered(commands, within=handover.within)
    return [_added(command, result) for command, result in zip(commands, results, strict=True)]


def _added(command: inner.Add, result: Added | list[Copy] | JobQueueError) -> Answer:
    answer = native.added(command, result)
    if command.numbered and answer["success"]:
        answer["number"] = int((command.id or "").removeprefix("#"))
    return answer


@one_inner
async def pop(engine: Engine, command: inner.Pop, handover: Handover) -> Answer:
    """Reserve the next ready jobs, or one by its id, and number them."""
    handover.check(command)
    if command.id is not None:
        return await _taken(engine, command, handover)
    jobs, numbers = await engine.pop_numbered(command, handover.room, owner=handover.grant.owner)
    handover.hand_out(jobs)
    return success(jobs=jobs, numbers=numbers)


async def _taken(engine: Engine, command: inner.Pop, handover: Handover) -> Answer:
    try:
        job = await engine.take(command, handover.within)
    except Limited:
        return success(jobs=[])
    handover.hand_out([job])
    return success(jobs=[job])


@one_inner
async def finish(engine: Engine, command: inner.Finish, handover: Handover) -> Answer:
    """Finish a job or, with `settles`, delete it if it was never delivered."""
    (result,) = await engine.finish([command], within=handover.within, settles=command.settles)
    return native.finished(command, result)


@one_inner
async def delete(engine: Engine, command: inner.Delete, handover: Handover) -> Answer:
    """Cancel a job, unless it is in one of the states in `spares`."""
    spares = [State[word.upper()] for word in command.spares]
    (was,) = await engine.delete([command], within=handover.within, spares=spares)
    return native.deleted(command, was)


# The native functions read the fields that these structs add.
ONE[inner.Release] = native.release
ONE[inner.Bury] = native.bury


@one_inner
async def get(engine: Engine, command: inner.Get, handover: Handover) -> Answer:
    """A job, or its tombstone."""
    handover.check(command)
    job = await engine.job(command.id, handover.within)
    handover.take([job])
    return success(job=job)


@one_inner
async def peek(engine: Engine, command: inner.Peek, handover: Handover) -> Answer:
    """Look at the first jobs of a topic in a state."""
    handover.check(command)
    jobs = await engine.peek_first(command, handover.room)
    handover.take(jobs)
    return success(topic=command.topic, jobs=jobs, numbers=await engine.numbered.numbers(jobs, command.numbered))


@one_inner
async def stats(engine: Engine, command: inner.Stats, handover: Handover) -> Answer:
    """The figures of a topic, or of all topics that begin with `prefix`."""
    if command.each:
        return success(topics=await engine.stats_of_each(command.prefix, handover.within, command.waits))
    figures, status = await engine.stats(command.topic, handover.within, command.waits, command.prefix)
    paused_until = status.paused.get(command.topic or "") if status else None
    return success(figures=figures, known=status is None or status.known, paused_until=paused_until)


@one_inner
async def names(engine: Engine, command: inner.Names, handover: Handover) -> Answer:
    """The names of all topics that begin with `prefix`."""
    return success(names=await engine.names(command.prefix, handover.within))


@one_inner
async def counter(engine: Engine, command: inner.Counter, handover: Handover) -> Answer:
    """The last number that was reserved from the counter."""
    return success(number=await engine.numbered.counter.last())


@one_inner
async def restore(engine: Engine, command: inner.Restore, handover: Handover) -> Answer:
    """Bring jobs back from the journal."""
    return success(id=command.id, count=await engine.restore(command, handover.within))


@one_inner
async def purge(engine: Engine, command: inner.Purge, handover: Handover) -> Answer:
    """Delete the jobs of a topic, or of all topics that begin with `prefix`."""
    return success(count=await engine.purge_all(command, handover.within))
