"""The commands, and `Commands`, which carries out those of a request and never raises.

A command reads its parameters, makes one call of the engine and names the parts of the answer; its docstring is its
entry in the reference. Consecutive adds, finishes or deletes of a request go to the engine together, all other commands
one after the other. A pop that follows finishes does not wait for their answers: it is sent right behind them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import structlog

from buckets import Added, Job, Sent
from buckets.errors import JobQueueError, Unavailable, WrongState
from jobqueue.answers import (
    Answer,
    described,
    died,
    failure,
    handed_out,
    in_seconds,
    kept,
    kept_copy,
    listed,
    paused,
    polling,
    success,
    unknown,
    why_empty,
)
from jobqueue.engine import Engine
from jobqueue.errors import BadRequest, TooLarge
from jobqueue.metrics.process import UNREADABLE, Metrics
from jobqueue.schema import params
from jobqueue.virtual_topics import Copy

log = structlog.get_logger()

Many = Callable[[Engine, Sequence[Any]], Awaitable[list[Answer]]]
One = Callable[[Engine, Any, "Handover"], Awaitable[Answer]]
AnyMany = TypeVar("AnyMany", bound=Many)
AnyOne = TypeVar("AnyOne", bound=One)

MANY: dict[type[Any], Many] = {}
"""Commands that take consecutive ones of a request together, by their structs."""
ONE: dict[type[Any], One] = {}
"""Commands that are carried out one by one, by their structs."""

ROOM = 8 << 20  # bytes of jobs that the answers to one request may hold; one job always fits
_FIELDS = 400  # bytes of a job in an answer besides its body and headers, which its record holds
_OVER = "the deadline of this request passed before the command began: it was not carried out"

Run = tuple[type[Any], list[Any]]
"""The struct of some commands, and those commands, which go to the engine together."""


class Handover:
    """What the answers to a request hand to its client: the jobs reserved for it, and how many more bytes of jobs they
    may hold."""

    __slots__ = ("reserved", "room")

    def __init__(self, reserved: list[Job]) -> None:
        self.reserved = reserved
        self.room = ROOM

    def take(self, jobs: Sequence[Job]) -> None:
        """Count the bytes of jobs; a million small ones add up, too."""
        self.room -= sum([_FIELDS + len(job.raw) for job in jobs])

    def check(self) -> None:
        """Raises TooLarge when no room is left."""
        if self.room <= 0:
            raise TooLarge(f"the answers to this request already hold {ROOM} bytes of jobs; ask again for more")


def many(command: AnyMany) -> AnyMany:
    """Make a function the command of its name. It takes consecutive ones together."""
    MANY[params.BY_NAME[command.__name__]] = command
    return command


def one(command: AnyOne) -> AnyOne:
    """Make a function the command of its name. It takes one at a time."""
    ONE[(params.BY_NAME | params.OF_TESTS)[command.__name__]] = command
    return command


def _durable(command: params.Add | params.Finish | params.Delete | params.Update) -> Answer:
    """The durability that the change reached, where the engine noted it in the command to be reported."""
    return {"durability": command.durability} if command.durability else {}


@many
async def add(engine: Engine, commands: Sequence[params.Add]) -> list[Answer]:
    """Keep a job until it is due. Repeating it with the same `id` finds the existing job, for as long as that is alive
    or remembered. An add to a virtual topic becomes one job in each of its topics, all or none, with ids
    `<id>@<topic>`. All other commands know only those topics and ids: a pop of the virtual topic finds nothing."""

    results = await engine.add(commands)
    return [
        kept(command.id, result) if isinstance(result, Added) and not command.durability else _added(command, result)
        for command, result in zip(commands, results, strict=True)
    ]


def _added(command: params.Add, result: Added | list[Copy] | JobQueueError) -> Answer:
    if isinstance(result, JobQueueError):
        return failure(result, command.id)
    if isinstance(result, Added):
        return kept(command.id, result) | _durable(command)
    copies = [kept_copy(*copy) for copy in result]
    return success(id=command.id, topic=command.topic, jobs=copies, **_durable(command))


@many
async def finish(engine: Engine, commands: Sequence[params.Finish], sent: Sent | None = None) -> list[Answer]:
    """The job is done. With `lease`, only its newest delivery can finish it; without, a late worker's finish counts
    too. A job that was never delivered is NOT_RESERVED: cancel it with delete. Repeating it succeeds for as long as the
    job is remembered."""
    return [
        {"success": True, "id": command.id, "state": result}
        if isinstance(result, str) and not command.durability
        else _finished(command, result)
        for command, result in zip(commands, await engine.finish(commands, sent), strict=True)
    ]


def _finished(command: params.Finish, result: str | JobQueueError) -> Answer:
    if isinstance(result, JobQueueError):
        return failure(result, command.id)
    return success(id=command.id, state=result, **_durable(command))


_WRONG_STATE: dict[type[Any], str] = {
    params.Delete: "the job is {state}",
    params.Kick: "only a dead job can be kicked; this one is {state}",
    params.Run: "only a delayed job can be run; this one is {state}",
    params.Update: "only a delayed or ready job can be updated; this one is {state}",
}


def _failure(error: Exception, command: Any) -> Answer:
    """The answer to a command that failed, with the sentence for its wrong state, of which the engine knows no more."""
    answer = failure(error, getattr(command, "id", None))
    if isinstance(error, WrongState) and error.state and type(command) in _WRONG_STATE:
        answer["error"] = _WRONG_STATE[type(command)].format(state=error.state)
    return answer


@many
async def delete(engine: Engine, commands: Sequence[params.Delete]) -> list[Answer]:
    """Cancel a job in any live state, whether a worker has it or not. A finished job is WRONG_STATE. Repeating it
    succeeds for as long as the deleted job is remembered; then `was` is deleted, whoever deleted it first: it does not
    tell that somebody else did."""
    results = await engine.delete(commands)
    return [_deleted(command, result) for command, result in zip(commands, results, strict=True)]


def _deleted(command: params.Delete, was: str | JobQueueError) -> Answer:
    if isinstance(was, JobQueueError):
        return _failure(was, command)
    return success(id=command.id, state="deleted", was=was, **_durable(command))


@one
async def pop(engine: Engine, command: params.Pop, handover: Handover) -> Answer:
    """Reserve the next ready job of `topic`, or of the first of `topics` that has one, for its time to run. With
    `count`, up to that many. If the client hangs up while its pop is waiting, no job is reserved and no try is used
    up. An answer without a job says so if a topic is paused, or if none of them exists."""
    handover.check()
    popped, status = await engine.pop(command, handover.room)
    handover.reserved.extend(popped.jobs)
    handover.take(popped.jobs)
    if command.count is not None:
        return success(jobs=[handed_out(job) for job in popped.jobs], **why_empty(status))
    if popped.jobs:
        return success(**handed_out(popped.jobs[0]))
    return success(id=None, value=None, **why_empty(status))


@one
async def touch(engine: Engine, command: params.Touch, handover: Handover) -> Answer:
    """Restart the lease of a reserved job: it runs from now, for `ttr` or as long as before."""
    return success(id=command.id, state="reserved", until=in_seconds(await engine.touch(command)))


@one
async def release(engine: Engine, command: params.Release, handover: Handover) -> Answer:
    """Give a reserved job back. It is due after `delay` or, without one, after the next step of its back-off or of the
    default one; due at once, it goes to the back of its ready list. It is dead when its tries are used up; with
    `attempt` false, this delivery does not count as a try."""
    moved = await engine.release(command)
    return success(id=command.id, state=moved.state, due=in_seconds(moved.due))


@one
async def bury(engine: Engine, command: params.Bury, handover: Handover) -> Answer:
    """Move a reserved job to the dead letters now, where it stays until it is kicked or deleted."""
    return success(id=command.id, state=await engine.bury(command))


@one
async def leave(engine: Engine, command: params.Leave, handover: Handover) -> Answer:
    """End the waiting pops of this worker, in every instance: each looks once more and answers with what it finds, or
    empty. For a worker that is about to stop: if it hung up just as an answer was being written, the job would stay
    reserved until the end of its TTR. Later pops wait as usual. A worker without waiting pops is not an error."""
    await engine.leave(command.worker)
    return success(worker=command.worker)


@one
async def kick(engine: Engine, command: params.Kick, handover: Handover) -> Answer:
    """Make dead letters ready again, due now, with their tries and back-off reset: the job `id`, or up to `count` jobs
    of a `topic`."""
    if command.topic is not None:
        return success(topic=command.topic, count=await engine.kick_topic(command.topic, command.count or 1))
    assert command.id is not None  # either is given
    return success(id=command.id, state=await engine.kick(command.id), count=1)


@one
async def run(engine: Engine, command: params.Run, handover: Handover) -> Answer:
    """Make a delayed job due now. A ready job is TOO_LATE, a reserved one RESERVED, any other WRONG_STATE."""
    return success(id=command.id, state="ready", due=in_seconds(await engine.run(command.id)))


@one
async def update(engine: Engine, command: params.Update, handover: Handover) -> Answer:
    """Change a delayed or ready job: at least one field, and those that are not given stay as they are. A new time for
    a ready job is TOO_LATE: it has already fired. A ready job keeps its place unless its priority changes. A reserved
    job is RESERVED, any other WRONG_STATE, and nothing changes. When Redis is full, only an update with a body needs
    room."""
    moved = await engine.update(command)
    return success(id=command.id, state=moved.state, due=in_seconds(moved.due), **_durable(command))


@one
async def get(engine: Engine, command: params.Get, handover: Handover) -> Answer:
    """Everything about a job: body, times, counts, options. Of an ended job, what is remembered: all but its body."""
    handover.check()
    job, paused_until = await engine.get(command.id)
    handover.take([job])
    return success(**described(job), **paused(paused_until))


@one
async def stats(engine: Engine, command: params.Stats, handover: Handover) -> Answer:
    """The figures of a topic, or of all topics. The counts by state and the all-time totals are exact."""
    figures, status = await engine.stats(command.topic)
    newest = await engine.newest_dead(command.topic) if command.topic and figures.counts["dead"] else None
    answer = success(
        **({"newest_dead": died(newest)} if newest else {}),
        topic=command.topic,
        counts=figures.counts,
        totals=figures.totals,
        oldest_ready=in_seconds(figures.oldest_ready_ms),
        due=figures.due,
        shards=engine.shards,
    )
    if command.topic and status:
        answer |= unknown(status.known) | paused(status.paused.get(command.topic))
    return answer


@one
async def peek(engine: Engine, command: params.Peek, handover: Handover) -> Answer:
    """Look at the jobs of a topic without reserving them: delayed and reserved jobs in the order of their times, dead
    ones in the order in which they died, ready ones in the order in which pops get them. A page with a `cursor` may be
    short or empty."""
    handover.check()
    page, cursor, known = await engine.peek(command, handover.room)
    handover.take(page.jobs)
    return success(topic=command.topic, jobs=[described(job) for job in page.jobs], cursor=cursor, **unknown(known))


@one
async def topics(engine: Engine, command: params.Topics, handover: Handover) -> Answer:
    """The topics with their counts, how long the oldest ready job has waited, how many workers poll, and pauses; in no
    particular order. A page with a `cursor` may be empty."""
    found, cursor = await engine.topics(command)
    return success(topics=[listed(*view) for view in found], cursor=cursor)


@one
async def workers(engine: Engine, command: params.Workers, handover: Handover) -> Answer:
    """Who polls which topics, and through which instance: the workers with a waiting pop, a pop in the last 90 s, or
    jobs in hand. Each instance knows its own workers and reports them every two seconds, up to 300 of them and sums of
    the rest. A worker that leaves, or hangs up while its pop waits, disappears at once, or when it has no more jobs in
    hand."""
    return success(**polling(await engine.workers(command.topic)))


@one
async def pause(engine: Engine, command: params.Pause, handover: Handover) -> Answer:
    """Make the pops of a topic find nothing. Its due jobs still become ready, and reserved jobs can be finished. A
    pause of a topic that does not exist yet holds for the jobs to come."""
    until, known = await engine.pause(command)
    return success(topic=command.topic, until=in_seconds(until or None), **unknown(known))


@one
async def resume(engine: Engine, command: params.Resume, handover: Handover) -> Answer:
    """End the pause of a topic."""
    was_paused, known = await engine.resume(command.topic)
    return success(topic=command.topic, was_paused=was_paused, **unknown(known))


@one
async def purge(engine: Engine, command: params.Purge, handover: Handover) -> Answer:
    """Delete the jobs of a topic that existed when the purge began. A request works for about a second; an answer with
    a `cursor` means that more are left. The purge stops when its client hangs up; what was deleted stays deleted."""
    count, cursor, known = await engine.purge(command)
    return success(topic=command.topic, count=count, cursor=cursor, **unknown(known))


@one
async def clock(engine: Engine, command: params.Clock, handover: Handover) -> Answer:
    """Let time pass on a test service. With the answer, all that fell due meanwhile is ready."""
    return success(now=in_seconds(await engine.advance(command)))


@one
async def reset(engine: Engine, command: params.Reset, handover: Handover) -> Answer:
    """Forget all jobs and topics of a test service, and set its clock to the host's time."""
    return success(now=in_seconds(await engine.reset()))


_NAMES: dict[type[Any], str] = {kind: name for name, kind in (params.BY_NAME | params.OF_TESTS).items()}


class Commands:
    """Carries out the commands of requests and counts their answers."""

    def __init__(self, engine: Engine, metrics: Metrics, deadline_s: float) -> None:
        """`deadline_s`: how long after the start of a request its commands may still begin."""
        self._engine = engine
        self._metrics = metrics
        self._deadline_s = deadline_s
        self._is_logged = logging.getLogger().isEnabledFor(logging.DEBUG)

    def answer(self, commands: Sequence[params.Command | BadRequest], reserved: list[Job]) -> Awaitable[list[Answer]]:
        """Carry out commands as if one after the other; returns an answer for each, in order. It never raises.

        A BadRequest in place of a command becomes its answer. Commands that have not begun by the deadline are
        UNAVAILABLE. `reserved` receives the jobs that the answers hand out, so that the caller can give them back when
        the answers reach nobody.
        """
        handover = Handover(reserved)
        if len(commands) == 1:
            return self._carry_out(type(commands[0]), commands, handover)
        return self._carry_out_all(commands, handover)

    def refuse(self, error: Exception) -> Answer:
        """The answer to a request that could not be read."""
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
            answers = [_failure(error, command) for command in run]
        self._count(run[0], answers, begun)
        return answers

    async def _carry_out_all(self, commands: Sequence[params.Command | BadRequest], handover: Handover) -> list[Answer]:
        """As `answer`, for several commands."""
        end = time.perf_counter() + self._deadline_s
        answers: list[Answer] = []
        runs = _runs(commands)
        while runs and time.perf_counter() <= end:
            kind, run = runs.popleft()
            if kind is params.Finish and runs and runs[0][0] is params.Pop:
                some = await self._finish_then_pop(run, runs, handover, end)
            else:
                some = await self._carry_out(kind, run, handover)
            answers += some
            if Unavailable.code in [each["code"] for each in some if "code" in each]:
                break
        answers += map(self._too_late, commands[len(answers) :])
        return answers

    async def _finish_then_pop(
        self, finishes: list[Any], runs: deque[Run], handover: Handover, end: float
    ) -> list[Answer]:
        """A worker's usual request: the pop, first of `runs`, is taken and sent as soon as the finishes are on their
        connection. It stays in `runs` when they were answered first, as when Redis cannot be reached, or at the end."""
        sent = asyncio.get_running_loop().create_future()

        def resolve(_: object = None) -> None:
            if not sent.done():
                sent.set_result(None)

        finishing = asyncio.create_task(self._carry_out(params.Finish, finishes, handover, resolve))
        finishing.add_done_callback(resolve)
        await sent
        if finishing.done() or time.perf_counter() > end:
            return await finishing
        popped = await self._carry_out(*runs.popleft(), handover)
        return [*await finishing, *popped]

    def _too_late(self, command: params.Command | BadRequest) -> Answer:
        """The answer to a command that was not begun: Redis did not answer an earlier one, or all took too long."""
        if isinstance(command, BadRequest):
            answer = failure(command)
        else:
            answer = failure(Unavailable(_OVER), getattr(command, "id", None))
        self._count(command, [answer], None)
        return answer

    def _count(self, command: params.Command | BadRequest, answers: list[Answer], begun: float | None) -> None:
        """Count the answers to commands like this one. `begun`: when, by `perf_counter`; None when they never began."""
        name = _NAMES.get(type(command))
        if self._is_logged:
            _log(name, command, answers)
        if name is None or begun is None:
            return self._metrics.answered(name or UNREADABLE, answers)
        waiting = isinstance(command, params.Pop) and bool(command.wait)
        return self._metrics.answered(name, answers, time.perf_counter() - begun, waiting=waiting)


def _log(name: str | None, command: params.Command | BadRequest, answers: list[Answer]) -> None:
    """A line per answer: which command, and what became of which job; no bodies."""
    topic = getattr(command, "topic", None) or getattr(command, "topics", None)
    for answer in answers:
        ids = [job["id"] for job in answer.get("jobs", ())] or answer.get("id")
        code = answer.get("code", "OK")
        own = answer.get("topic", topic if len(answers) == 1 else None)
        log.debug("command.answered", command=name, code=code, id=ids, topic=own)


def _runs(commands: Sequence[params.Command | BadRequest]) -> deque[Run]:
    """Group the commands that go to the engine together."""
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
