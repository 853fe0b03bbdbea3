"""The commands: a table of them, and `answer`, which never raises.

A command reads its parameters, makes one call of the engine and names the parts of the reply; its docstring is its
entry in the reference. Commands of one kind that stand together in a request, and change each a job of their own, go
to the engine together; the others one after the other, but for a pop behind finishes, which is sent right behind them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from buckets import Added, Job
from buckets.errors import JobQueueError, Unavailable
from jobqueue.answers import Answer, described, failure, handed_out, in_seconds, kept, kept_copy, listed, success
from jobqueue.engine import Copy, Engine
from jobqueue.errors import BadRequest, TooLarge
from jobqueue.metrics.process import UNREADABLE, Metrics
from jobqueue.schema import params

Many = Callable[[Engine, Sequence[Any]], Awaitable[list[Answer]]]
One = Callable[[Engine, Any, "Handover"], Awaitable[Answer]]

ROOM = 8 << 20  # bytes of jobs that the answers to one request hold; one job always has room
_FIELDS = 400  # bytes of a job in an answer, beside its body and headers: its record has them


class Handover:
    """What the answers to a request take with them: the jobs reserved for its client, and how many bytes of jobs they
    may still hold."""

    __slots__ = ("reserved", "room")

    def __init__(self, reserved: list[Job]) -> None:
        self.reserved = reserved
        self.room = ROOM

    def take(self, jobs: Sequence[Job]) -> None:
        """Count the bytes of jobs. A million small ones are many, too."""
        self.room -= sum([_FIELDS + len(job.raw) for job in jobs])

    def check(self) -> None:
        """Raises TooLarge when there is no room any more."""
        if self.room <= 0:
            raise TooLarge(f"the answers to this request hold {ROOM} bytes of jobs already; ask again for more")


def _durable(command: params.Add | params.Finish | params.Delete | params.Update) -> Answer:
    """How safe the change is, as the engine noted it in the command, where that is to be told."""
    return {"durability": command.durability} if command.durability else {}


async def add(engine: Engine, commands: Sequence[params.Add]) -> list[Answer]:
    """Keep a job until it is due. Repeated with the same `id` it finds the job that is there, as long as that lives or
    is remembered. To a virtual topic: one job in each of its topics, all or none, with ids `<id>@<topic>`. All other
    commands know those topics and ids only: a pop of the virtual topic finds nothing."""

    results = await engine.add(commands)
    return [
        kept(command.id, result) if isinstance(result, Added) and not command.durability else _told(command, result)
        for command, result in zip(commands, results, strict=True)
    ]


def _told(command: params.Add, result: Added | list[Copy] | JobQueueError) -> Answer:
    if isinstance(result, JobQueueError):
        return failure(result, command.id)
    if isinstance(result, Added):
        return kept(command.id, result) | _durable(command)
    copies = [kept_copy(*copy) for copy in result]
    return success(id=command.id, topic=command.topic, jobs=copies, **_durable(command))


def _states(commands: Sequence[params.Finish | params.Delete], results: Sequence[str | JobQueueError]) -> list[Answer]:
    return [
        {"success": True, "id": command.id, "state": result}
        if isinstance(result, str) and not command.durability
        else _ended(command, result)
        for command, result in zip(commands, results, strict=True)
    ]


def _ended(command: params.Finish | params.Delete, result: str | JobQueueError) -> Answer:
    if isinstance(result, JobQueueError):
        return failure(result, command.id)
    return success(id=command.id, state=result, **_durable(command))


async def finish(engine: Engine, commands: Sequence[params.Finish]) -> list[Answer]:
    """The job is done. With `lease`, only by its newest delivery; without, a late worker's word counts too. A job that
    nobody ever had is NOT_RESERVED: delete cancels it. Again, while it is remembered: success."""
    return _states(commands, await engine.finish(commands))


async def delete(engine: Engine, commands: Sequence[params.Delete]) -> list[Answer]:
    """Cancel a job in any live state, with a worker or not. A finished one is WRONG_STATE; one that was deleted before
    is a success, while it is remembered."""
    return _states(commands, await engine.delete(commands))


async def pop(engine: Engine, command: params.Pop, handover: Handover) -> Answer:
    """Reserve the next ready job of `topic`, or of the first of `topics` that has one, for its time to run. With
    `count`, up to so many. A client that hangs up while its pop waits gets none and burns no try."""
    handover.check()
    popped = await engine.pop(command, handover.room)
    handover.reserved.extend(popped.jobs)
    handover.take(popped.jobs)
    if command.count is not None:
        return success(jobs=[handed_out(job) for job in popped.jobs])
    return success(**handed_out(popped.jobs[0])) if popped.jobs else success(id=None, value=None)


async def touch(engine: Engine, command: params.Touch, handover: Handover) -> Answer:
    """The lease of a reserved job runs anew from now, for `ttr` or as long as before."""
    return success(id=command.id, state="reserved", until=in_seconds(await engine.touch(command)))


async def release(engine: Engine, command: params.Release, handover: Handover) -> Answer:
    """Give a reserved job back: to the back of the ready list, or due after `delay`; without one after the next step of
    its back-off. It is dead when its tries are used up; with `attempt` false this delivery was none."""
    moved = await engine.release(command)
    return success(id=command.id, state=moved.state, due=in_seconds(moved.due))


async def bury(engine: Engine, command: params.Bury, handover: Handover) -> Answer:
    """A reserved job goes to the dead letters now, and stays there until it is kicked or deleted."""
    return success(id=command.id, state=await engine.bury(command))


async def leave(engine: Engine, command: params.Leave, handover: Handover) -> Answer:
    """The pops of this worker that wait now end, in whichever instance: each looks once more, and answers with what it
    finds, or empty. For a worker that is to stop: if it hung up in the instant in which an answer is written, the job
    would stay reserved until its TTR is over. Pops that come later wait as ever; a worker without pops is no error."""
    await engine.leave(command.worker)
    return success(worker=command.worker)


async def kick(engine: Engine, command: params.Kick, handover: Handover) -> Answer:
    """Dead letters are ready again, their tries and back-off anew, due now: the job `id`, or up to `count` of a
    `topic`."""
    if command.topic is not None:
        return success(topic=command.topic, count=await engine.kick_topic(command.topic, command.count or 1))
    assert command.id is not None  # either is given
    return success(id=command.id, state=await engine.kick(command.id), count=1)


async def run(engine: Engine, command: params.Run, handover: Handover) -> Answer:
    """A delayed job is due now. A ready one is TOO_LATE, a reserved one RESERVED, any other WRONG_STATE."""
    return success(id=command.id, state="ready", due=in_seconds(await engine.run(command.id)))


async def update(engine: Engine, command: params.Update, handover: Handover) -> Answer:
    """Change a job that is delayed or ready; what is not given stays. A time given to a ready one is TOO_LATE: it fired
    already. A ready one keeps its place, but for a new priority. A reserved one is RESERVED, any other WRONG_STATE, and
    nothing changes. When Redis is full, only an update with a body needs room."""
    moved = await engine.update(command)
    return success(id=command.id, state=moved.state, due=in_seconds(moved.due), **_durable(command))


async def get(engine: Engine, command: params.Get, handover: Handover) -> Answer:
    """All of a job: body, times, counts, options; what is remembered of an ended one too, without its body."""
    handover.check()
    job = await engine.get(command.id)
    handover.take([job])
    return success(**described(job))


async def stats(engine: Engine, command: params.Stats, handover: Handover) -> Answer:
    """The figures of a topic, or of all. Counts by state and totals ever are exact."""
    figures = await engine.stats(command.topic)
    return success(
        topic=command.topic,
        counts=figures.counts,
        totals=figures.totals,
        oldest_ready=in_seconds(figures.oldest_ready_ms),
        due=figures.due,
        shards=engine.shards,
    )


async def peek(engine: Engine, command: params.Peek, handover: Handover) -> Answer:
    """Look at the jobs of a topic without reserving them: delayed and reserved ones by their time, dead ones by that of
    their death, ready ones as a pop gets them. A page may be short or empty while there is a `cursor`."""
    handover.check()
    page, cursor = await engine.peek(command, handover.room)
    handover.take(page.jobs)
    return success(topic=command.topic, jobs=[described(job) for job in page.jobs], cursor=cursor)


async def topics(engine: Engine, command: params.Topics, handover: Handover) -> Answer:
    """Names and counts of the topics, in no order. A page may be empty while there is a `cursor`."""
    found, cursor = await engine.topics(command)
    return success(topics=[listed(topic) for topic in found], cursor=cursor)


async def pause(engine: Engine, command: params.Pause, handover: Handover) -> Answer:
    """Pops of a topic find nothing. Its due jobs still become ready, and what is reserved may be finished."""
    until = await engine.pause(command)
    return success(topic=command.topic, until=in_seconds(until or None))


async def resume(engine: Engine, command: params.Resume, handover: Handover) -> Answer:
    """End the pause of a topic."""
    return success(topic=command.topic, was_paused=await engine.resume(command.topic))


async def purge(engine: Engine, command: params.Purge, handover: Handover) -> Answer:
    """Delete the jobs of a topic that were there when the purge began. It works for about a second; while there is a
    `cursor`, there is more to do. It stops when its client hangs up; what was deleted then stays so."""
    count, cursor = await engine.purge(command)
    return success(topic=command.topic, count=count, cursor=cursor)


MANY: dict[type[Any], Many] = {params.Add: add, params.Finish: finish, params.Delete: delete}
ONE: dict[type[Any], One] = {
    params.Pop: pop,
    params.Touch: touch,
    params.Release: release,
    params.Bury: bury,
    params.Leave: leave,
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


async def _carry_out(
    engine: Engine, kind: type[Any], run: Sequence[Any], handover: Handover, metrics: Metrics
) -> list[Answer]:
    """The answers to commands that go to the engine together; they are counted here."""
    begun = time.perf_counter()
    try:
        if kind in MANY:
            answers = await MANY[kind](engine, run)
        elif kind in ONE:
            answers = [await ONE[kind](engine, run[0], handover)]
        else:
            answers = [failure(refused) for refused in run]
    except Exception as error:
        answers = [failure(error, getattr(command, "id", None)) for command in run]
    _count(metrics, run[0], answers, begun)
    return answers


def _runs(commands: Sequence[params.Command | BadRequest]) -> list[tuple[type[Any], list[Any]]]:
    """The commands, those together that stand together and go to the engine together."""
    runs: list[tuple[type[Any], list[Any]]] = []
    run: list[Any] = []
    joined = None
    for command in commands:
        kind = type(command)
        if kind is joined:
            run.append(command)
            continue
        run = [command]
        runs.append((kind, run))
        joined = kind if kind in MANY else None
    return runs


_OVER = "the time of this request was over before the command began: it was not carried out"
_NAMES: dict[type[Any], str] = {kind: name for name, kind in params.BY_NAME.items()}


def _count(metrics: Metrics, command: params.Command | BadRequest, answers: list[Answer], begun: float | None) -> None:
    """Count the answers to commands of the kind of this one; `begun` when something was done for them."""
    name = _NAMES.get(type(command))
    if name is None or begun is None:
        return metrics.answered(name or UNREADABLE, answers)
    waiting = isinstance(command, params.Pop) and bool(command.wait)
    return metrics.answered(name, answers, time.perf_counter() - begun, waiting=waiting)


def answer(
    engine: Engine,
    commands: Sequence[params.Command | BadRequest],
    reserved: list[Job],
    metrics: Metrics,
    deadline_s: float,
) -> Awaitable[list[Answer]]:
    """Carry out commands as if one after the other; an answer for each, in their order. Those that have not begun after
    `deadline_s` are UNAVAILABLE.

    What is wrong with a command stands in its place and is told there. `reserved` is filled with the jobs that the
    answers hand out, so that the caller can give them back when the answers reach nobody.
    """
    handover = Handover(reserved)
    if len(commands) == 1:
        return _carry_out(engine, type(commands[0]), commands, handover, metrics)
    return _carry_out_all(engine, commands, handover, metrics, time.perf_counter() + deadline_s)


async def _carry_out_all(
    engine: Engine, commands: Sequence[params.Command | BadRequest], handover: Handover, metrics: Metrics, end: float
) -> list[Answer]:
    """As `answer`; `end`: after which, by the clock of `perf_counter`, no more of them begin."""
    answers: list[Answer] = []
    finishing: asyncio.Task[list[Answer]] | None = None
    runs = _runs(commands)
    for place, (kind, run) in enumerate(runs):
        if time.perf_counter() > end:
            break
        work = _carry_out(engine, kind, run, handover, metrics)
        pop_follows = place + 1 < len(runs) and runs[place + 1][0] is params.Pop
        if kind is params.Finish and pop_follows and engine.leave_at_once(run):
            # A worker's usual request. Both go to Redis together, the finishes first.
            finishing = asyncio.create_task(work)
            await engine.begun()
            continue
        some = await work
        if finishing:
            some, finishing = [*await finishing, *some], None
        answers.extend(some)
        if Unavailable.code in [each["code"] for each in some if "code" in each]:
            break
    if finishing:
        answers.extend(await finishing)
    # Redis did not answer one, or they took long together: the deadline of the request is over for those that follow.
    left = commands[len(answers) :]
    for each in left:
        told = failure(each) if isinstance(each, BadRequest) else failure(Unavailable(_OVER), getattr(each, "id", None))
        _count(metrics, each, [told], None)
        answers.append(told)
    return answers
