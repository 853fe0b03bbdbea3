"""The commands: a table of them, and `answer`, which never raises.

A command reads its parameters, makes one call of the engine and names the parts of the reply; its docstring is its
entry in the reference. Commands of one kind that stand together in a request, and change each a job of their own, go
to the engine together; the others one after the other, but for a pop behind finishes, which is sent right behind them.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from buckets import Added, Job, Sent
from buckets.errors import JobQueueError, Unavailable
from jobqueue.answers import Answer, described, failure, handed_out, in_seconds, kept, kept_copy, listed, success
from jobqueue.engine import Engine
from jobqueue.errors import BadRequest, TooLarge
from jobqueue.metrics.process import UNREADABLE, Metrics
from jobqueue.schema import params
from jobqueue.virtual_topics import Copy

Many = Callable[[Engine, Sequence[Any]], Awaitable[list[Answer]]]
One = Callable[[Engine, Any, "Handover"], Awaitable[Answer]]
AnyMany = TypeVar("AnyMany", bound=Many)
AnyOne = TypeVar("AnyOne", bound=One)

MANY: dict[type[Any], Many] = {}
"""The commands that take all of their kind that follow one another in a request, by their structs."""
ONE: dict[type[Any], One] = {}
"""The commands that are carried out one by one, by their structs."""

ROOM = 8 << 20  # bytes of jobs that the answers to one request hold; one job always has room
_FIELDS = 400  # bytes of a job in an answer, beside its body and headers: its record has them


Run = tuple[type[Any], list[Any]]
"""Commands of one kind that go to the engine together."""


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


def many(command: AnyMany) -> AnyMany:
    """Register a function as the command of its name; it takes a run of them."""
    MANY[params.BY_NAME[command.__name__]] = command
    return command


def one(command: AnyOne) -> AnyOne:
    """Register a function as the command of its name; it takes one."""
    ONE[params.BY_NAME[command.__name__]] = command
    return command


def _durable(command: params.Add | params.Finish | params.Delete | params.Update) -> Answer:
    """How safe the change is, as the engine noted it in the command, where that is to be told."""
    return {"durability": command.durability} if command.durability else {}


@many
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


@many
async def finish(engine: Engine, commands: Sequence[params.Finish], sent: Sent | None = None) -> list[Answer]:
    """The job is done. With `lease`, only by its newest delivery; without, a late worker's word counts too. A job that
    nobody ever had is NOT_RESERVED: delete cancels it. Again, while it is remembered: success."""
    return _states(commands, await engine.finish(commands, sent))


@many
async def delete(engine: Engine, commands: Sequence[params.Delete]) -> list[Answer]:
    """Cancel a job in any live state, with a worker or not. A finished one is WRONG_STATE; one that was deleted before
    is a success, while it is remembered."""
    return _states(commands, await engine.delete(commands))


@one
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


@one
async def touch(engine: Engine, command: params.Touch, handover: Handover) -> Answer:
    """The lease of a reserved job runs anew from now, for `ttr` or as long as before."""
    return success(id=command.id, state="reserved", until=in_seconds(await engine.touch(command)))


@one
async def release(engine: Engine, command: params.Release, handover: Handover) -> Answer:
    """Give a reserved job back: to the back of the ready list, or due after `delay`; without one after the next step of
    its back-off. It is dead when its tries are used up; with `attempt` false this delivery was none."""
    moved = await engine.release(command)
    return success(id=command.id, state=moved.state, due=in_seconds(moved.due))


@one
async def bury(engine: Engine, command: params.Bury, handover: Handover) -> Answer:
    """A reserved job goes to the dead letters now, and stays there until it is kicked or deleted."""
    return success(id=command.id, state=await engine.bury(command))


@one
async def leave(engine: Engine, command: params.Leave, handover: Handover) -> Answer:
    """The pops of this worker that wait now end, in whichever instance: each looks once more, and answers with what it
    finds, or empty. For a worker that is to stop: if it hung up in the instant in which an answer is written, the job
    would stay reserved until its TTR is over. Pops that come later wait as ever; a worker without pops is no error."""
    await engine.leave(command.worker)
    return success(worker=command.worker)


@one
async def kick(engine: Engine, command: params.Kick, handover: Handover) -> Answer:
    """Dead letters are ready again, their tries and back-off anew, due now: the job `id`, or up to `count` of a
    `topic`."""
    if command.topic is not None:
        return success(topic=command.topic, count=await engine.kick_topic(command.topic, command.count or 1))
    assert command.id is not None  # either is given
    return success(id=command.id, state=await engine.kick(command.id), count=1)


@one
async def run(engine: Engine, command: params.Run, handover: Handover) -> Answer:
    """A delayed job is due now. A ready one is TOO_LATE, a reserved one RESERVED, any other WRONG_STATE."""
    return success(id=command.id, state="ready", due=in_seconds(await engine.run(command.id)))


@one
async def update(engine: Engine, command: params.Update, handover: Handover) -> Answer:
    """Change a job that is delayed or ready; what is not given stays. A time given to a ready one is TOO_LATE: it fired
    already. A ready one keeps its place, but for a new priority. A reserved one is RESERVED, any other WRONG_STATE, and
    nothing changes. When Redis is full, only an update with a body needs room."""
    moved = await engine.update(command)
    return success(id=command.id, state=moved.state, due=in_seconds(moved.due), **_durable(command))


@one
async def get(engine: Engine, command: params.Get, handover: Handover) -> Answer:
    """All of a job: body, times, counts, options; what is remembered of an ended one too, without its body."""
    handover.check()
    job = await engine.get(command.id)
    handover.take([job])
    return success(**described(job))


@one
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


@one
async def peek(engine: Engine, command: params.Peek, handover: Handover) -> Answer:
    """Look at the jobs of a topic without reserving them: delayed and reserved ones by their time, dead ones by that of
    their death, ready ones as a pop gets them. A page may be short or empty while there is a `cursor`."""
    handover.check()
    page, cursor = await engine.peek(command, handover.room)
    handover.take(page.jobs)
    return success(topic=command.topic, jobs=[described(job) for job in page.jobs], cursor=cursor)


@one
async def topics(engine: Engine, command: params.Topics, handover: Handover) -> Answer:
    """Names and counts of the topics, in no order. A page may be empty while there is a `cursor`."""
    found, cursor = await engine.topics(command)
    return success(topics=[listed(topic) for topic in found], cursor=cursor)


@one
async def pause(engine: Engine, command: params.Pause, handover: Handover) -> Answer:
    """Pops of a topic find nothing. Its due jobs still become ready, and what is reserved may be finished."""
    until = await engine.pause(command)
    return success(topic=command.topic, until=in_seconds(until or None))


@one
async def resume(engine: Engine, command: params.Resume, handover: Handover) -> Answer:
    """End the pause of a topic."""
    return success(topic=command.topic, was_paused=await engine.resume(command.topic))


@one
async def purge(engine: Engine, command: params.Purge, handover: Handover) -> Answer:
    """Delete the jobs of a topic that were there when the purge began. It works for about a second; while there is a
    `cursor`, there is more to do. It stops when its client hangs up; what was deleted then stays so."""
    count, cursor = await engine.purge(command)
    return success(topic=command.topic, count=count, cursor=cursor)


_OVER = "the deadline of this request passed before the command began: it was not carried out"
_NAMES: dict[type[Any], str] = {kind: name for name, kind in params.BY_NAME.items()}


class Commands:
    """Carries out the commands of requests and counts their answers."""

    def __init__(self, engine: Engine, metrics: Metrics, deadline_s: float) -> None:
        """`deadline_s`: how long after the beginning of a request its commands may still begin."""
        self._engine = engine
        self._metrics = metrics
        self._deadline_s = deadline_s

    def answer(self, commands: Sequence[params.Command | BadRequest], reserved: list[Job]) -> Awaitable[list[Answer]]:
        """Carry out commands as if one after the other; returns an answer for each, in their order. It never raises.

        An error in the place of a command becomes its answer. Those that have not begun at the deadline are
        UNAVAILABLE. `reserved` receives the jobs that the answers hand out, so that the caller can give them back when
        the answers reach nobody.
        """
        handover = Handover(reserved)
        if len(commands) == 1:
            return self._carry_out(type(commands[0]), commands, handover)
        return self._carry_out_all(commands, handover)

    def refuse(self, error: Exception) -> Answer:
        """The answer to a request that cannot be read."""
        refused = failure(error)
        self._metrics.answered(UNREADABLE, [refused])
        return refused

    async def _carry_out(
        self, kind: type[Any], run: Sequence[Any], handover: Handover, sent: Sent | None = None
    ) -> list[Answer]:
        """The answers to commands that go to the engine together. `sent`: for finishes, as in `Engine.finish`."""
        begun = time.perf_counter()
        try:
            if sent:
                answers = await finish(self._engine, run, sent)
            elif kind in MANY:
                answers = await MANY[kind](self._engine, run)
            elif kind in ONE:
                answers = [await ONE[kind](self._engine, run[0], handover)]
            else:
                answers = [failure(refused) for refused in run]
        except Exception as error:
            answers = [failure(error, getattr(command, "id", None)) for command in run]
        self._count(run[0], answers, begun)
        return answers

    async def _carry_out_all(self, commands: Sequence[params.Command | BadRequest], handover: Handover) -> list[Answer]:
        """As `answer`, for any number of commands."""
        end = time.perf_counter() + self._deadline_s
        answers: list[Answer] = []
        runs = _runs(commands)
        while runs and time.perf_counter() <= end:
            kind, run = runs.popleft()
            if kind is params.Finish and runs and runs[0][0] is params.Pop:
                some = await self._finish_then_pop(run, runs, handover)
            else:
                some = await self._carry_out(kind, run, handover)
            answers += some
            if Unavailable.code in [each["code"] for each in some if "code" in each]:
                break
        answers += map(self._too_late, commands[len(answers) :])
        return answers

    async def _finish_then_pop(self, finishes: list[Any], runs: deque[Run], handover: Handover) -> list[Answer]:
        """A worker's usual request: the pop, which is the first of `runs`, leaves for Redis right behind the finishes.
        Where they could not be sent it stays in `runs`."""
        sent = asyncio.get_running_loop().create_future()

        def resolve(_: object = None) -> None:
            if not sent.done():
                sent.set_result(None)

        finishing = asyncio.create_task(self._carry_out(params.Finish, finishes, handover, resolve))
        finishing.add_done_callback(resolve)
        await sent
        if finishing.done():
            return await finishing
        popped = await self._carry_out(*runs.popleft(), handover)
        return [*await finishing, *popped]

    def _too_late(self, command: params.Command | BadRequest) -> Answer:
        """The answer to a command that was not begun: Redis did not answer one before it, or all took too long."""
        if isinstance(command, BadRequest):
            answer = failure(command)
        else:
            answer = failure(Unavailable(_OVER), getattr(command, "id", None))
        self._count(command, [answer], None)
        return answer

    def _count(self, command: params.Command | BadRequest, answers: list[Answer], begun: float | None) -> None:
        """Count the answers to commands of the kind of this one; `begun`: None when nothing was done for them."""
        name = _NAMES.get(type(command))
        if name is None or begun is None:
            return self._metrics.answered(name or UNREADABLE, answers)
        waiting = isinstance(command, params.Pop) and bool(command.wait)
        return self._metrics.answered(name, answers, time.perf_counter() - begun, waiting=waiting)


def _runs(commands: Sequence[params.Command | BadRequest]) -> deque[Run]:
    """The commands, with those that follow one another and go to the engine together in one list."""
    runs: deque[Run] = deque()
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
