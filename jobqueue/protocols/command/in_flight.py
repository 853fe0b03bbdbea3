"""Plain requests in flight on the fast path: each receives the outcome of its commands, and answers.

A simple success is answered at once, from a template. Otherwise the request goes on with a task, as on the complete
path: the task reports the errors, or carries out again, with the same ids, the commands that were not done.

The templates write the same bytes that the complete path writes for the same results. Names of jobs and topics have no
character that JSON escapes; everything else that is not a number is written by orjson.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, NamedTuple

import orjson

from buckets import Added, Job, Popped
from buckets.job import Kind
from buckets.layout import SPAN
from jobqueue.access.caller import Caller
from jobqueue.commands import native
from jobqueue.commands.answers import Answer, handed_out
from jobqueue.commands.carrying_out import Commands
from jobqueue.commands.table import ROOM
from jobqueue.engine.by_callback import Pop
from jobqueue.engine.engine import Engine
from jobqueue.protocols import Reply
from jobqueue.schema import params

_ORDER = ["id", "value", "state", "topic", "lease", "attempt", "tries", "due", "ttr", "headers", "created"]
_MOST_KINDS = 256  # kinds remembered, at most 4 KB each
_NOTHING = b'{"success":true,"id":null,"value":null}'

_Parts = tuple[bytes, bytes, bytes]

_parts: dict[Kind, _Parts] = {}
"""For each kind of job, the bytes that are written after the value, after the lease and after the due time."""
_dumps, _whole = orjson.dumps, int.from_bytes
_TIMES = slice(SPAN["created"].start, SPAN["due"].stop)


def added(commands: Sequence[params.Add], results: Sequence[Any]) -> bytes | None:
    """The answers to adds, without brackets, or None if one of the adds failed."""
    parts: list[str] = []
    before: object = None
    tail = ""
    for command, result in zip(commands, results, strict=True):
        if result is not before:  # similar jobs share one result
            if type(result) is not Added:
                return None
            before = result
            tail = f'","state":"{result[1]}","due":{result[2] / 1000},"result":"{result[0]}"}}'
        parts.append(f'{{"success":true,"id":"{command.id}{tail}')
    return ",".join(parts).encode()


def finished(commands: Sequence[params.Finish], states: Sequence[Any]) -> bytes | None:
    """The answers to finishes, without brackets, or None if one of the finishes failed."""
    parts: list[str] = []
    for command, state in zip(commands, states, strict=True):
        if type(state) is not str:
            return None
        parts.append(f'{{"success":true,"id":"{command.id}","state":"{state}"}}')
    return ",".join(parts).encode()


def popped(command: params.Pop, found: Popped) -> bytes | None:
    """The answer to a pop, or None if it must say why the pop found nothing."""
    jobs = found.jobs
    if not jobs and found.ask_why:
        return None
    if command.count is not None:
        return b'{"success":true,"jobs":[%b]}' % b",".join(handed(jobs))
    return b'{"success":true,' + handed(jobs)[0][1:] if jobs else _NOTHING


def handed(jobs: Sequence[Job]) -> list[bytes]:
    """Jobs as a worker gets them: `handed_out`, as bytes."""
    written: list[bytes] = []
    kind: Kind | None = None
    lease = -1
    times = before_lease = before_due = behind = b""
    for job in jobs:
        raw, own_kind = job.raw, job.kind
        own = raw[_TIMES]
        if own != times or own_kind is not kind or job.lease != lease:  # otherwise like the job before
            parts = _parts.get(own_kind) or _remember(job)
            if parts is None:
                written.append(orjson.dumps(handed_out(job)))
                continue
            kind, lease, times = own_kind, job.lease, own
            before_lease, before_due, behind = parts
            due, created = _dumps(job.due / 1000), _dumps(_whole(own[:6]) / 1000)
            behind = b"%b%d%b%b%b%b}" % (before_lease, lease, before_due, due, behind, created)
        written.append(b'{"id":%b,"value":%b%b' % (_dumps(job.id), raw[own_kind.body_at :] or b"null", behind))
    return written


def _remember(job: Job) -> _Parts | None:
    """The parts of an answer that are the same for all jobs of this job's kind, or None if the job was delivered
    before."""
    answer = handed_out(job)
    if [*answer] != _ORDER:
        return None
    if len(_parts) >= _MOST_KINDS:
        _parts.clear()
    texts = [b'"%b":%b' % (name.encode(), orjson.dumps(answer[name])) for name in _ORDER]
    parts = _parts[job.kind] = (
        b',%b,"lease":' % b",".join(texts[2:4]),
        b',%b,"due":' % b",".join(texts[5:7]),
        b',%b,"created":' % b",".join(texts[8:10]),
    )
    return parts


class Change(NamedTuple):
    """A kind of commands that change jobs."""

    name: str
    write: Callable[[Sequence[Any], Sequence[Any]], bytes | None]
    """Writes the answers, or returns None unless all commands succeeded."""
    answer: Callable[[Any, Any], Answer]
    """Makes the answer to one command, from its result or error."""


ADD = Change("add", added, native.added)
FINISH = Change("finish", finished, native.finished)

Work = Callable[[list[Job]], Awaitable[Reply]]
"""Makes the reply to a request; the list receives the jobs that the reply hands out."""
Respond = Callable[[Work, str, Any], Coroutine[Any, Any, None]]
"""Answers a request with the reply that some work makes; called with the work, the request id and the client."""

_PENDING = object()
_MOST_UNWATCHED = 32 << 10  # bytes of an answer that a transport accepts at once, even if its client does not read


class Desk:
    """What the requests in flight share."""

    def __init__(
        self, engine: Engine, commands: Commands, render: Callable[[list[Answer], bool], Reply], respond: Respond
    ) -> None:
        """`render`: makes the reply from answers; its second argument is True if the request was an array."""
        self.engine = engine
        self.commands = commands
        self.render = render
        self.respond = respond


class _InFlight:
    """A request, which is answered once unless it is cancelled before."""

    __slots__ = ("_begun", "_client", "_desk", "_is_array", "_is_over", "_request_id")

    def __init__(self, desk: Desk, client: Caller, request_id: str, *, is_array: bool) -> None:
        self._desk = desk
        self._client = client
        self._request_id = request_id
        self._is_array = is_array
        self._is_over = False
        self._begun = time.perf_counter()

    def take(self, outcome: Any) -> None:
        """Receive the outcome of the commands; for finishes followed by a pop, only that of the pop."""
        try:
            self._take(outcome)
        except Exception as error:
            self._take_bug(self._take, outcome, error)

    def _take(self, outcome: Any) -> None:
        raise NotImplementedError

    def _take_bug(self, take: Callable[[Any], None], outcome: Any, bug: Exception) -> None:
        """Answer with the bug, because the outcome cannot be answered: otherwise the client would wait forever."""
        if self._is_over:
            raise bug
        if type(outcome) is Popped:
            self._desk.engine.give_back(outcome.jobs)
        take(bug)

    def cancel(self) -> None:
        """The client is gone: do not answer."""
        self._is_over = True

    def _answer(self, body: bytes) -> None:
        self._is_over = True
        self._client.answer(b"[%b]" % body if self._is_array else body, self._request_id)

    def _go_on(self, work: Callable[[list[Job]], Awaitable[list[Answer]]]) -> None:
        """Answer with a task, which gets the answers from `work`."""
        desk, is_array = self._desk, self._is_array
        self._is_over = True

        async def reply(reserved: list[Job]) -> Reply:
            return desk.render(await work(reserved), is_array)

        self._client.complete(desk.respond(reply, self._request_id, self._client))

    async def _settled(
        self, run: Sequence[Any], outcome: Any, reserved: list[Job], begun: float, how: Change | None = None
    ) -> list[Answer]:
        """The answers to commands of which not all succeeded. `how`: their kind, if `outcome` may be a list of
        results."""
        commands = self._desk.commands
        if outcome is None:
            return await commands.answer(run, reserved)
        if how and isinstance(outcome, list):
            answers = [how.answer(command, result) for command, result in zip(run, outcome, strict=True)]
        else:
            answers = [native.failed(outcome, command) for command in run]
        commands.count(run[0], answers, begun)
        return answers


class Changing(_InFlight):
    """Commands of one kind that change jobs."""

    __slots__ = ("_how", "_run")

    def __init__(
        self, how: Change, run: Sequence[Any], desk: Desk, client: Caller, request_id: str, *, is_array: bool
    ) -> None:
        super().__init__(desk, client, request_id, is_array=is_array)
        self._how = how
        self._run = run

    def _take(self, outcome: Any) -> None:
        if self._is_over:
            return
        how = self._how
        body = how.write(self._run, outcome) if type(outcome) is list else None
        if body is None:
            self._go_on(lambda reserved: self._settled(self._run, outcome, reserved, self._begun, how))
            return
        self._desk.commands.count_done(how.name, len(outcome), self._begun)
        self._answer(body)


class Popping(_InFlight):
    """A pop. Many of them may wait, so this object is small."""

    __slots__ = ("_command", "_pop")

    def __init__(self, command: params.Pop, desk: Desk, client: Caller, request_id: str, *, is_array: bool) -> None:
        super().__init__(desk, client, request_id, is_array=is_array)
        self._command = command
        self._pop: Pop | None = None

    def begin(self, owner: str) -> bool:
        """Begin the pop; returns whether the engine accepts it. `owner`: the owner of the pop, in case it waits."""
        self._pop = self._desk.engine.by_callback.pop(self._command, ROOM, self._client, self.take, owner)
        return self._pop is not None

    def cancel(self) -> None:
        """The client is gone: no more jobs are reserved for it, and those already reserved are returned."""
        super().cancel()
        if self._pop is not None:
            self._pop.cancel()

    def _take(self, found: Any) -> None:
        body = self._written(found)
        if body is None:
            self._go_on(lambda reserved: self._explained(found, reserved))
        else:
            self._hand_out(body, found)

    def _written(self, found: Any) -> bytes | None:
        """The answer to a pop that simply succeeded, which is also counted; None for any other outcome."""
        body = popped(self._command, found) if type(found) is Popped else None
        if body is not None:
            self._desk.commands.count_done("pop", 1, self._begun, waiting=bool(self._command.wait))
        return body

    def _hand_out(self, body: bytes, found: Popped) -> None:
        """Answer with jobs; they are returned if the client has hung up meanwhile."""
        if found.jobs and (len(body) > _MOST_UNWATCHED or self._client.is_behind):
            self._go_on_with(body, found.jobs)
        elif found.jobs and self._client.has_hung_up():
            self._is_over = True
            self._desk.engine.give_back(found.jobs)
        else:
            self._answer(body)

    def _go_on_with(self, body: bytes, jobs: list[Job]) -> None:
        """Answer with a task, which waits until the client reads: the jobs are returned if it never does."""
        written = b"[%b]" % body if self._is_array else body
        self._is_over = True

        async def reply(reserved: list[Job]) -> Reply:
            reserved += jobs
            return Reply(200, written)

        self._client.complete(self._desk.respond(reply, self._request_id, self._client))

    async def _explained(self, found: Any, reserved: list[Job]) -> list[Answer]:
        """The answer to a pop that failed, or that must say why it found nothing."""
        command = self._command
        if isinstance(found, Popped):
            return [await self._desk.commands.say_why(command, found, self._begun)]
        return await self._settled([command], found, reserved, self._begun)


class FinishingThenPopping(Popping):
    """Finishes followed by a pop. They are sent to Redis together."""

    __slots__ = ("_ended", "_ended_s", "_finishes", "_found")

    def __init__(
        self,
        finishes: Sequence[params.Finish],
        command: params.Pop,
        desk: Desk,
        client: Caller,
        request_id: str,
        *,
        is_array: bool,
    ) -> None:
        super().__init__(command, desk, client, request_id, is_array=is_array)
        self._finishes = finishes
        self._ended: Any = _PENDING  # the answers to the finishes, or their outcome if not all succeeded
        self._ended_s = 0.0  # how long they took
        self._found: Any = _PENDING

    def begin(self, owner: str) -> bool:
        """Begin the finishes and the pop; returns whether the engine accepts the finishes."""
        if not self._desk.engine.by_callback.finish(ends_of(self._finishes), self.take_ended):
            return False
        if not super().begin(owner):
            self._found = None
        return True

    def cancel(self) -> None:
        """The client is gone: see `Popping`."""
        if type(self._found) is Popped and not self._is_over:
            self._desk.engine.give_back(self._found.jobs)
        super().cancel()

    def take_ended(self, outcome: Any) -> None:
        """Receive the outcome of the finishes."""
        try:
            self._take_ended(outcome)
        except Exception as error:
            self._take_bug(self._take_ended, outcome, error)

    def _take_ended(self, outcome: Any) -> None:
        if self._is_over:
            return
        body = finished(self._finishes, outcome) if type(outcome) is list else None
        if body is not None:
            self._desk.commands.count_done("finish", len(outcome), self._begun)
            self._ended, self._finishes = body, ()
        elif outcome is None and self._found is _PENDING and self._pop is not None:
            self._pop.cancel(is_gone=False)  # the pop must not overtake the finishes
            self._go_on(lambda reserved: self._desk.commands.answer([*self._finishes, self._command], reserved))
            return
        else:
            self._ended, self._ended_s = outcome, time.perf_counter() - self._begun
        if self._found is not _PENDING:
            self._settle()

    def _take(self, found: Any) -> None:
        self._found = found
        if self._ended is not _PENDING:
            self._settle()

    def _settle(self) -> None:
        ended, found = self._ended, self._found
        body = self._written(found) if type(ended) is bytes else None
        if body is None:
            self._go_on(self._both)
        else:
            self._hand_out(b"%b,%b" % (ended, body), found)

    async def _both(self, reserved: list[Job]) -> list[Answer]:
        """The answers to the finishes and the pop if not all of them simply succeeded."""
        found, ended = self._found, self._ended
        if isinstance(found, Popped):
            reserved += found.jobs
        if isinstance(ended, bytes):
            answers: list[Answer] = orjson.loads(b"[%b]" % ended)
        else:
            begun = time.perf_counter() - self._ended_s
            answers = await self._settled(self._finishes, ended, reserved, begun, FINISH)
        return [*answers, *await self._explained(found, reserved)]


def ends_of(finishes: Sequence[params.Finish]) -> list[tuple[str, int | None]]:
    """The jobs that commands finish, as the engine expects them."""
    return [(command.id, command.lease) for command in finishes]
