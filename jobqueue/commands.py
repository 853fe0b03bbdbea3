"""The commands: a table of them, and `answer`, which never raises.

A command reads its parameters, makes one call of the engine and names the parts of the reply; its docstring is its
entry in the reference. Commands of one kind that stand together in a request, and change each a job of their own, go
to the engine together; the others one after the other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

from buckets import Added, Job
from buckets.errors import JobQueueError, Unavailable
from jobqueue import params
from jobqueue.answers import Answer, described, failure, handed_out, in_seconds, listed, success
from jobqueue.engine import Engine
from jobqueue.errors import BadRequest, TooLarge

Many = Callable[[Engine, list[Any]], Awaitable[list[Answer]]]
One = Callable[[Engine, Any, "Handover"], Awaitable[Answer]]

ROOM = 8 << 20  # bytes of jobs that the answers to one request hold; one job always has room
_FIELDS = 400  # bytes of a job in an answer, beside its body and what it has of optional fields


class Handover:
    """What the answers to a request take with them: the jobs reserved for its client, and how many bytes of jobs they
    may still hold."""

    def __init__(self, reserved: list[Job]) -> None:
        self.reserved = reserved
        self.room = ROOM

    def take(self, jobs: Sequence[Job]) -> None:
        """Count the bytes of jobs. A million small ones are many, too."""
        self.room -= sum(_FIELDS + len(job.body) + sum(map(len, job.optional.values())) for job in jobs)

    def check(self) -> None:
        """Raises TooLarge when there is no room any more."""
        if self.room <= 0:
            raise TooLarge(f"the answers to this request hold {ROOM} bytes of jobs already; ask again for more")


def _durable(command: params.Add | params.Finish | params.Delete | params.Update) -> Answer:
    """How safe the change is, for who asked."""
    return {"durability": "local"} if command.durability else {}


async def add(engine: Engine, commands: list[params.Add]) -> list[Answer]:
    """Keep a job until it is due."""

    def told(command: params.Add, job_id: str, result: Added | JobQueueError) -> Answer:
        if isinstance(result, JobQueueError):
            return failure(result, job_id)
        parts = {"state": result.state, "due": in_seconds(result.due), "result": result.result}
        return success(id=job_id, **parts, **_durable(command))

    results = await engine.add(commands)
    return [told(command, *result) for command, result in zip(commands, results, strict=True)]


def _states(commands: Sequence[params.Finish | params.Delete], results: Sequence[str | JobQueueError]) -> list[Answer]:
    return [
        failure(result, command.id)
        if isinstance(result, JobQueueError)
        else success(id=command.id, state=result, **_durable(command))
        for command, result in zip(commands, results, strict=True)
    ]


async def finish(engine: Engine, commands: list[params.Finish]) -> list[Answer]:
    """The job is done."""
    return _states(commands, await engine.finish(commands))


async def delete(engine: Engine, commands: list[params.Delete]) -> list[Answer]:
    """Cancel a job in any live state; `state` is what it was."""
    return _states(commands, await engine.delete(commands))


async def pop(engine: Engine, command: params.Pop, handover: Handover) -> Answer:
    """Reserve the next ready job, or up to `count` of them."""
    handover.check()
    popped = await engine.pop(command, handover.room)
    handover.reserved.extend(popped.jobs)
    handover.take(popped.jobs)
    if command.count is not None:
        return success(jobs=[handed_out(job) for job in popped.jobs])
    return success(**handed_out(popped.jobs[0])) if popped.jobs else success(id=None, value=None)


async def touch(engine: Engine, command: params.Touch, handover: Handover) -> Answer:
    """The lease runs anew from now, for `ttr` or as long as before."""
    return success(id=command.id, state="reserved", until=in_seconds(await engine.touch(command)))


async def release(engine: Engine, command: params.Release, handover: Handover) -> Answer:
    """Give a job back: to the back of the ready list, or due after `delay`, or after the next step of its back-off. It
    is dead when its tries are used up; with `attempt` false this delivery was none."""
    moved = await engine.release(command)
    return success(id=command.id, state=moved.state, due=in_seconds(moved.due))


async def bury(engine: Engine, command: params.Bury, handover: Handover) -> Answer:
    """To the dead letters now."""
    return success(id=command.id, state=await engine.bury(command))


async def kick(engine: Engine, command: params.Kick, handover: Handover) -> Answer:
    """Dead letters are ready again, their tries and ladder anew, due now: the job `id`, or up to `count` (1 by
    default) of a `topic`, those first that died first."""
    if command.topic is not None:
        return success(topic=command.topic, count=await engine.kick_topic(command.topic, command.count or 1))
    assert command.id is not None  # either is given
    return success(id=command.id, state=await engine.kick(command.id), count=1)


async def run(engine: Engine, command: params.Run, handover: Handover) -> Answer:
    """A delayed job is due now."""
    return success(id=command.id, state="ready", due=in_seconds(await engine.run(command.id)))


async def update(engine: Engine, command: params.Update, handover: Handover) -> Answer:
    """Change a job that is delayed or ready. A ready one fired already: its time cannot be changed any more."""
    moved = await engine.update(command)
    return success(id=command.id, state=moved.state, due=in_seconds(moved.due), **_durable(command))


async def get(engine: Engine, command: params.Get, handover: Handover) -> Answer:
    """Look a job up, its state, counts and times; a tombstone too, as long as it stays."""
    handover.check()
    job = await engine.get(command.id)
    handover.take([job])
    return success(**described(job))


async def stats(engine: Engine, command: params.Stats, handover: Handover) -> Answer:
    """The figures of a topic, or of all: counts by state, totals ever, the age of the oldest ready job, and pending
    jobs by the range of their due time."""
    figures = await engine.stats(command.topic)
    return success(
        topic=command.topic,
        counts=figures.counts,
        totals=figures.totals,
        oldest_ready=in_seconds(figures.oldest_ready_ms),
        due=figures.due,
    )


async def peek(engine: Engine, command: params.Peek, handover: Handover) -> Answer:
    """Look at the jobs of a topic without reserving them, in one `state` or in all live ones: delayed and reserved ones
    by their time, dead ones by that of their death, ready ones as a pop gets them. Up to `count` (100 by default) a
    page; a page may be short or empty while there is a `cursor`, which the next call takes."""
    handover.check()
    page, cursor = await engine.peek(command, handover.room)
    handover.take(page.jobs)
    return success(topic=command.topic, jobs=[described(job) for job in page.jobs], cursor=cursor)


async def topics(engine: Engine, command: params.Topics, handover: Handover) -> Answer:
    """Names and counts of the topics, or of those that fit a `pattern` of `*` and `?`, in no order. A page may be empty
    while there is a `cursor`."""
    found, cursor = await engine.topics(command)
    return success(topics=[listed(topic) for topic in found], cursor=cursor)


async def pause(engine: Engine, command: params.Pause, handover: Handover) -> Answer:
    """Pops of a topic find nothing, for so many `seconds` or until it is resumed; due jobs still become ready."""
    until = await engine.pause(command)
    return success(topic=command.topic, until=in_seconds(until or None))


async def resume(engine: Engine, command: params.Resume, handover: Handover) -> Answer:
    """End the pause of a topic; `paused` is whether there was one."""
    return success(topic=command.topic, paused=await engine.resume(command.topic))


async def purge(engine: Engine, command: params.Purge, handover: Handover) -> Answer:
    """Delete the jobs of a topic that were there when the purge began, in one `state` or in all live ones. It works for
    about a second; where there is a `cursor`, there is more to do, and the next call takes it."""
    count, cursor = await engine.purge(command)
    return success(topic=command.topic, count=count, cursor=cursor)


MANY: dict[type[Any], Many] = {params.Add: add, params.Finish: finish, params.Delete: delete}
ONE: dict[type[Any], One] = {
    params.Pop: pop,
    params.Touch: touch,
    params.Release: release,
    params.Bury: bury,
    params.Kick: kick,
    params.Run: run,
    params.Update: update,
    params.Get: get,
    params.Stats: stats,
    params.Peek: peek,
    params.Topics: topics,
    params.Pause: pause,
    params.Resume: resume,
    params.Purge: purge,
}


async def _answer_one(engine: Engine, command: params.Command | BadRequest, handover: Handover) -> Answer:
    if isinstance(command, BadRequest):
        return failure(command)
    try:
        return await ONE[type(command)](engine, command, handover)
    except Exception as error:
        return failure(error, getattr(command, "id", None))


async def _answer_many(engine: Engine, handler: Many, commands: list[Any]) -> list[Answer]:
    try:
        return await handler(engine, commands)
    except Exception as error:
        return [failure(error, command.id) for command in commands]


def _runs(commands: Sequence[params.Command | BadRequest]) -> Iterator[tuple[type[Any], list[Any]]]:
    """The commands, those together that stand together and go to the engine together."""
    for kind, alike in groupby(commands, type):
        if kind in MANY:
            yield kind, list(alike)
        else:
            yield from ((kind, [command]) for command in alike)


async def answer(engine: Engine, commands: Sequence[params.Command | BadRequest], reserved: list[Job]) -> list[Answer]:
    """Carry out commands one after the other; an answer for each, in their order.

    What is wrong with a command stands in its place and is told there. `reserved` is filled with the jobs that the
    answers hand out, so that the caller can give them back when the answers reach nobody.
    """
    answers: list[Answer] = []
    handover = Handover(reserved)
    for kind, run in _runs(commands):
        if kind in MANY:
            some = await _answer_many(engine, MANY[kind], run)
        else:
            some = [await _answer_one(engine, run[0], handover)]
        answers.extend(some)
        if any(each.get("code") == Unavailable.code for each in some):
            break
    # Redis did not answer one: the deadline of the request is over, for those that follow too.
    left = commands[len(answers) :]
    answers.extend(
        failure(each) if isinstance(each, BadRequest) else failure(Unavailable(), getattr(each, "id", None))
        for each in left
    )
    return answers
