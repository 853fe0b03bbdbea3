"""`Commands` carries out the commands of a request and never raises.

Consecutive adds, finishes or deletes of a request go to the engine together, all other commands one after the other. A
pop that follows finishes does not wait for their answers: it is sent right after them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import structlog

from buckets import Job, Popped, Sent
from buckets.errors import JobQueueError, NoRoom, NotFound, TopicFull, Unavailable
from buckets.shards import ACTOR
from jobqueue.access.grants import GRANT, NO_NAME, USER, Grant, actor_of
from jobqueue.commands import inner as _inner  # noqa: F401 - fills the tables
from jobqueue.commands import native
from jobqueue.commands.actions import is_action, is_view, note
from jobqueue.commands.answers import Answer, failure
from jobqueue.commands.native import failed
from jobqueue.commands.plain import Plain
from jobqueue.commands.table import MANY, ONE, Handover
from jobqueue.engine.engine import Engine
from jobqueue.errors import BadRequest
from jobqueue.logs import Sparing
from jobqueue.metrics.process import UNREADABLE, Metrics
from jobqueue.schema import inner, params

if TYPE_CHECKING:
    from jobqueue.commands.spans import CommandSpans

log = structlog.get_logger()

_OVER = "the deadline of this request passed before the command began: it was not carried out"

Asked = params.Command | inner.Inner | BadRequest | JobQueueError
"""A command, or the reason why it is refused."""
Run = tuple[type[Any], list[Any]]
"""A struct, and the commands of this struct that go to the engine together."""

_REFUSED_RIGHT = {NoRoom.code, TopicFull.code, Unavailable.code}

_NAMES: dict[type[Any], str] = {
    kind: name for table in (params.BY_NAME, params.OF_TESTS, inner.BY_NAME) for name, kind in table.items()
}


class Commands:
    """Carries out the commands of requests and counts their answers."""

    def __init__(
        self,
        engine: Engine,
        metrics: Metrics,
        deadline_s: float,
        protocol: str = "native",
        *,
        logs_views: bool = False,
        spans: CommandSpans | None = None,
    ) -> None:
        """`deadline_s`: how long after the start of a request its commands may still begin. `protocol`: the protocol
        that the commands are counted under. `logs_views`: True if it counts as an action that a person sees the bodies
        of jobs. `spans`: makes the span of each command, or None if commands are not traced."""
        self._engine = engine
        self._metrics = metrics
        self._deadline_s = deadline_s
        self._protocol = protocol
        self._logs_views = logs_views
        self._refusals = Sparing("command.refused")
        self._spans = spans
        self._is_logged = logging.getLogger().isEnabledFor(logging.DEBUG)
        self.is_noted = self._is_logged or spans is not None
        """Whether each command is logged or traced; no command then takes the fast path, which notes nothing."""
        self.plain = Plain(engine, self, is_noted=self.is_noted)
        """Carries out the commands whose answers come by callback."""

    async def answer(
        self, commands: Sequence[Asked], reserved: list[Job], *, within: str = "", by_number: bool = False
    ) -> list[Answer]:
        """Carry out commands as if one after the other, as far as the grant of the request (`GRANT`) allows; returns an
        answer for each command, in order. Never raises.

        An error in place of a command becomes its answer. Commands that have not begun by the deadline are UNAVAILABLE.
        `reserved` receives the jobs that the answers hand out, so that the caller can return the jobs if the answers do
        not reach the client.

        Dialects pass two more arguments. `within`: the topic that the jobs must be in or, with a `*` at its end, the
        prefix of their topics; an empty string allows any topic. A job elsewhere is NOT_FOUND, or ALREADY_EXISTS for an
        add. `by_number`: True if the ids are numbers, `#<n>`, which may also stand for other ids (see
        engine/numbered.py).
        """
        grant = GRANT.get()
        if not grant.everything:
            try:
                grant = grant.current()
            except JobQueueError as ended:
                return [self._refused(ended, command) for command in commands]
            commands = await grant.checked(commands)
        actor = actor_of(grant, USER.get())
        ACTOR.set("" if actor == NO_NAME else actor)
        handover = Handover(reserved, grant, within, by_number=by_number)
        if len(commands) == 1:
            return await self._carry_out(type(commands[0]), commands, handover)
        return await self._carry_out_all(commands, handover)

    @property
    def metrics(self) -> Metrics:
        """The metrics that count the answers."""
        return self._metrics

    def _refused(self, error: JobQueueError, command: Asked) -> Answer:
        """The answer to a command that is not begun."""
        answer = failure(command) if isinstance(command, JobQueueError) else failed(error, command)
        self.count(command, [answer], None)
        return answer

    def refuse(self, error: Exception) -> Answer:
        """The answer to a request that could not be read."""
        refused = failure(error)
        self._metrics.answered(UNREADABLE, [refused], protocol=self._protocol)
        return refused

    async def _carry_out(
        self, kind: type[Any], run: Sequence[Any], handover: Handover, sent: Sent | None = None
    ) -> list[Answer]:
        """The answers to commands that go to the engine together. `sent`: for finishes, as in `Engine.finish`."""
        begun = time.perf_counter()
        noted = None
        try:
            if self._is_action(run[0], handover.grant):
                noted = await note(self._engine.actions, run, handover)
            if sent:
                answers = await native.finish(self._engine, run, handover, sent)
            elif handover.by_number:
                answers = [await self._begin_by_number(command, handover) for command in run]
            else:
                answers = await self._begin(kind, run, handover)
        except Exception as error:
            answers = [failed(error, command) for command in run]
        except BaseException:
            if noted is not None:
                noted.cut_off()
            raise
        if noted is not None:
            await noted.end(answers)
        self.count(run[0], answers, begun)
        return answers

    async def _begin(self, kind: type[Any], run: Sequence[Any], handover: Handover) -> list[Answer]:
        if kind in MANY:
            return await MANY[kind](self._engine, run, handover)
        if kind in ONE:
            return [await ONE[kind](self._engine, run[0], handover)]
        return [failure(refused) for refused in run]

    async def _begin_by_number(self, command: Any, handover: Handover) -> Answer:
        """The answer to a command that names a job by number: it applies to the first existing job among those that the
        number may stand for."""
        if isinstance(command, JobQueueError):
            return failure(command)
        missing: Answer = {}
        async for job_id in self._engine.numbered.ids(command.id, handover.asked_within):
            command.id = job_id
            try:
                (answer,) = await self._begin(type(command), [command], handover)
            except NotFound as error:
                answer = failed(error, command)
            if answer.get("code") != NotFound.code:
                return answer
            if not missing or "state" in answer:
                missing = answer
        return missing

    def _is_action(self, command: Any, grant: Grant) -> bool:
        """Whether a command gets an entry in the log of actions."""
        user = USER.get()
        return is_action(command, user) or (self._logs_views and is_view(command, user, grant))

    async def say_why(self, command: params.Pop, found: Popped, begun: float) -> Answer:
        """The answer to a pop that was carried out by callback and must say why it found nothing."""
        try:
            answer = await native.popped(self._engine, command, found)
        except Exception as error:
            answer = failed(error, command)
        self.count(command, [answer], begun)
        return answer

    async def _carry_out_all(self, commands: Sequence[Asked], handover: Handover) -> list[Answer]:
        """Like `answer`, for several commands."""
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
        """A worker's usual request. The pop is the first of `runs`: it is removed and sent as soon as the finishes have
        been written to their connection. The pop stays in `runs` if the finishes were answered first, for example
        because Redis cannot be reached, or if the time `end` has passed."""
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

    def _too_late(self, command: Asked) -> Answer:
        """The answer to a command that was not begun, because Redis did not answer an earlier command or the earlier
        commands took too long."""
        return self._refused(Unavailable(_OVER), command)

    def count_done(self, name: str, number: int, begun: float, *, waiting: bool = False) -> None:
        """Count commands of the same kind that were carried out by callback and succeeded; nothing is logged.
        `waiting`: True for a pop that may wait."""
        self._metrics.done(name, number, time.perf_counter() - begun, protocol=self._protocol, waiting=waiting)

    def count(self, command: Asked, answers: list[Answer], begun: float | None) -> None:
        """Count the answers to commands of the same kind as `command`. `begun`: when the commands began, by
        `perf_counter`, or None if they never began."""
        name = _NAMES.get(type(command))
        if name is None and isinstance(command, JobQueueError) and command.refused:
            name, begun = _NAMES.get(command.refused), None
        protocol = self._protocol
        if self._is_logged:
            _log(protocol, name, command, answers)
        waiting = isinstance(command, params.Pop) and bool(command.wait)
        seconds = None if name is None or begun is None else time.perf_counter() - begun
        name = name or UNREADABLE
        if self._spans is not None:
            self._spans.note(name, command, answers, seconds, protocol=protocol)
        if not self._metrics.answered(name, answers, seconds, protocol=protocol, waiting=waiting):
            self._note_refusals(name, command, answers)

    def _note_refusals(self, name: str, command: Asked, answers: list[Answer]) -> None:
        """Log commands that were refused although they are valid: an operator must act."""
        topic = getattr(command, "topic", None)
        for code in (answer["code"] for answer in answers if answer.get("code") in _REFUSED_RIGHT):
            self._refusals.note((code, name), code=code, command=name, topic=topic, protocol=self._protocol)


def _log(protocol: str, name: str | None, command: Asked, answers: list[Answer]) -> None:
    """Log a line for each answer: the command, its code and the ids of its jobs, without bodies."""
    topic = getattr(command, "topic", None) or getattr(command, "topics", None)
    for answer in answers:
        ids = [_id_of(job) for job in answer.get("jobs", ())] or answer.get("id")
        code = answer.get("code", "OK")
        own = answer.get("topic", topic if len(answers) == 1 else None)
        log.debug("command.answered", protocol=protocol, command=name, code=code, id=ids, topic=own)


def _id_of(job: Answer | Job) -> str:
    return job.id if isinstance(job, Job) else job["id"]


def _runs(commands: Sequence[Asked]) -> deque[Run]:
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
