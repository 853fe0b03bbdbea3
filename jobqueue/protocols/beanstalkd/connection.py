"""A connection: the tubes that it uses and watches, and the jobs that it holds, which are released when it closes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import structlog

from buckets import Job, State, Tag
from buckets.errors import JobQueueError
from jobqueue.access.authentication import Entry
from jobqueue.access.grants import GRANT, OPEN, Grant
from jobqueue.commands.answers import Answer
from jobqueue.commands.plain import Plain
from jobqueue.dialect_settings import Beanstalkd
from jobqueue.engine.by_callback import NumberedPop
from jobqueue.protocols import Dialect
from jobqueue.protocols.beanstalkd import parser
from jobqueue.protocols.beanstalkd.parser import DEFAULT, PUT, Names, Parser, Request, Tubes
from jobqueue.schema import inner, params
from jobqueue.wires.stream import Stream, Streams

log = structlog.get_logger()

_LONGEST_RUN = 200  # commands that go to Redis together
_IN_RUNS = {PUT, "delete", "reserve", "reserve-with-timeout"}
_LONGEST_S = 86_400.0  # of a lease
_KEPT_BACK_S = 0.002  # how long an answer waits for the next one: a write costs more than all else of a request
_RESERVED = State.RESERVED

Command = Callable[..., Awaitable[bytes]]
"""Answers a request, from the connection and the arguments."""
Commands = Mapping[str, Command]
Run = tuple[str, list[tuple[Any, ...]]]
"""The name of a command, and the arguments of each of the commands with this name that the client sent in a row. Only
the commands of `_IN_RUNS` are grouped."""
Begin = Callable[["Connection", Run], bool]
"""Begins to answer a run without a task, like `Stream.begin`."""


class Held:
    """A job that a connection holds."""

    __slots__ = ("ends", "id", "is_gone", "lease", "level", "note", "topic", "ttr_s")

    def __init__(self, job: Job, now: float) -> None:
        """`now`: loop time."""
        kind = job.kind
        self.id = job.id
        self.topic = kind.topic
        self.lease = job.lease
        self.level = kind.priority
        self.note: bytes = kind.optional.get(Tag.NOTE, b"") if kind.optional else b""
        self.is_gone = kind.state is not _RESERVED
        """True if the job has no time to run: it was finished when it was popped."""
        self.ttr_s = _LONGEST_S if self.is_gone else kind.ttr / 1000
        self.ends = now + self.ttr_s

    def new_note(self, desk: Desk, level: int, priority: int, delay: int | None = None) -> bytes | None:
        """The note for the job's new priority and delay; with None, the delay stays as it was. Returns None if the job
        has the note of another dialect, which must stay."""
        if parser.is_foreign(self.note):
            return None
        levels = desk.options.levels
        kept_delay = parser.read(levels, self.level, self.note)[1]
        return parser.written(levels, level, priority, kept_delay if delay is None else delay)


class Desk:
    """What the connections of a dialect in this process share."""

    def __init__(
        self, dialect: Dialect[Beanstalkd], streams: Streams, commands: Commands, begins: Mapping[str, Begin]
    ) -> None:
        self.dialect = dialect
        self.plain: Plain = dialect.tools.commands.plain
        """Carries out plain commands."""
        self.streams = streams
        self.commands = commands
        self.begins = begins
        """How to begin the commands that may be answered without a task."""
        self.tubes = Tubes()
        self.counts: Counter[str] = Counter()
        """How often each command came."""
        self.producers = 0
        """Connections that have put a job."""
        self.workers = 0
        """Connections that have reserved a job."""
        self._returning: set[asyncio.Task[None]] = set()
        self._unwritten: list[Connection] = []
        self._names = Names(dialect.options.prefix)
        self._watches_default = (self.names.topic(DEFAULT) or DEFAULT,)

    @property
    def options(self) -> Beanstalkd:
        """The settings as they are now."""
        return self.dialect.options

    @property
    def names(self) -> Names:
        """The names of tubes, with the prefix as it is now."""
        if self._names.prefix != self.options.prefix:
            self._names = Names(self.options.prefix)
        return self._names

    def waiting(self) -> Counter[str]:
        """How many connections wait for a job, by topic; the empty topic counts all connections that wait."""
        watched = (each.watched for each in self.streams.open if isinstance(each, Connection) and each.is_waiting)
        return Counter(topic for topics in watched for topic in ("", *topics))

    def write_soon(self, connection: Connection) -> None:
        """Within 2 ms, write the answers that a connection keeps back, unless its next answer takes them along."""
        if not self._unwritten:
            asyncio.get_running_loop().call_later(_KEPT_BACK_S, self._write)
        self._unwritten.append(connection)

    def _write(self) -> None:
        connections, self._unwritten = self._unwritten, []
        for each in connections:
            each.write_rest()

    def give_back(self, jobs: Iterable[Held], grant: Grant) -> None:
        """Release the jobs of a closed connection at once, without counting a try. `grant`: the grant with which the
        jobs were reserved."""
        releases = [
            params.Release(id=held.id, lease=held.lease, delay=0, attempt=False) for held in jobs if not held.is_gone
        ]
        if releases:
            task = asyncio.create_task(self._release(releases, grant))
            self._returning.add(task)
            task.add_done_callback(self._returning.discard)

    async def _release(self, releases: list[params.Release], grant: Grant) -> None:
        GRANT.set(grant)
        answers = await asyncio.gather(*map(self.dialect.ask, releases))
        kept = sum(parser.of_failure(answer) is parser.INTERNAL_ERROR for answer in answers if not answer["success"])
        if kept:  # these jobs are ready again when their TTR ends
            log.warning("jobs.kept", jobs=kept)

    async def returned(self) -> None:
        """Wait until the jobs of all closed connections have been released."""
        while self._returning:
            await asyncio.wait(self._returning)

    def first_watched(self) -> tuple[str, ...]:
        """The topics that a new connection watches; all connections share one tuple."""
        topic = self.names.topic(DEFAULT)
        if topic and self._watches_default[0] != topic:
            self._watches_default = (topic,)
        return self._watches_default


class Connection(Stream[Run]):
    """One connection of a client."""

    may_be_idle = True

    __slots__ = (
        "_ahead",
        "_left",
        "_parser",
        "deleting",
        "desk",
        "has_put",
        "has_reserved",
        "held",
        "pop",
        "unwritten",
        "used",
        "watched",
    )

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk.streams)
        self.desk = desk
        self.watched = desk.first_watched()
        """Topics, in the order of watching."""
        self.used = self.watched[0]
        self.held: dict[int, Held] = {}
        """The jobs that it reserved, by their numbers."""
        self.has_put = False
        self.has_reserved = False
        self.pop: NumberedPop | None = None
        """The pop in flight, or None."""
        self.deleting: Any = None
        """The deletes in flight, if reserves that follow them are in flight, too; or None."""
        self.unwritten = b""
        """Answers that are kept back to be written with the next one: see `Desk.write_soon`."""
        self._parser = Parser()
        self._ahead: Request | None = None  # the request that came after a run
        self._left: Run | None = None  # the rest of a run that is partly answered

    def entered(self) -> None:
        """The connection has been accepted."""
        tubes = self.desk.tubes
        tubes.use(self.used)
        tubes.watch(self.used)

    @property
    def now(self) -> float:
        """Loop time."""
        return self._loop.time()

    @property
    def is_draining(self) -> bool:
        """Whether the service is stopping."""
        return self.desk.streams.draining

    @property
    def refuses_jobs(self) -> bool:
        """Whether a put is answered with DRAINING."""
        return self.is_draining or self.desk.dialect.refuses_jobs

    def take(self) -> Run | None:
        """The next command, with the commands of the same name that follow it."""
        if self._left is not None:
            left, self._left = self._left, None
            return left
        received, parse = self.received, self._parser.take
        most_bytes = self.desk.dialect.options.max_job_bytes
        first, self._ahead = self._ahead, None
        if first is None:
            first = parse(received, most_bytes) if received else None
            if first is None:
                return None
        name, run = first[0], [first[1]]
        while received and name in _IN_RUNS and len(run) < _LONGEST_RUN:
            ahead = parse(received, most_bytes)
            if ahead is None:
                break
            if ahead[0] != name:
                self._ahead = ahead
                break
            run.append(ahead[1])
        self.desk.counts[name] += len(run)
        return name, run

    def write_rest(self) -> None:
        """Write the answers that are not written yet, if the client is still there."""
        unwritten, self.unwritten = self.unwritten, b""
        if unwritten and not self.is_closing:
            self.write(unwritten)

    def close(self) -> None:
        """Write what is kept back, and close the connection after that."""
        self.write_rest()
        super().close()

    def leave(self, left: Run) -> None:
        """Keep the rest of a run, to be answered next."""
        self._left = left

    def is_amid(self) -> bool:
        """Whether the client has sent a part of a request, but not all of it."""
        return bool(self.received) or self._parser.is_amid

    def begin(self, request: Run) -> bool:
        """Begin to answer plain commands. On a service with tokens, all commands take the complete path."""
        entry = self.desk.dialect.tools.entry
        if not entry.is_open:
            return not self._is_let_in(entry)
        self.grant = OPEN
        begin = self.desk.begins.get(request[0])
        return begin is not None and begin(self, request)

    def _is_let_in(self, entry: Entry) -> bool:
        """Returns False, and closes the connection, if the token that clients of this dialect act as is not valid."""
        try:
            self.grant = entry.dialect_grant(None, self.desk.options, self.host)
        except JobQueueError:
            self.write(parser.INTERNAL_ERROR)
            self.close()
            return False
        return True

    async def answer(self, request: Run) -> None:
        """Answer commands."""
        name, run = request
        command = self.desk.commands[name]
        for arguments in [(run,)] if name == PUT else run:
            reply = await command(self, *arguments)
            if reply:
                self.write(reply)

    async def ask_by_number(self, command: inner.Inner | params.Command, reserved: list[Job] | None = None) -> Answer:
        """The answer to a command on a job in any tube, which the command names by its number: see
        `Commands.answer`."""
        return await self.desk.dialect.ask(command, reserved, within=self.desk.names.within, by_number=True)

    def holds(self, number: int) -> Held | None:
        """The job that the connection holds under this number, or None if it holds none or the lease has ended."""
        held = self.held.get(number)
        if held is not None and held.ends <= self.now:
            del self.held[number]
            return None
        return held

    def earliest_end(self) -> float | None:
        """When the first lease of the held jobs ends, in loop time, or None if there is no such lease."""
        now = self.now
        for number in [number for number, held in self.held.items() if held.ends <= now]:
            del self.held[number]
        return min((held.ends for held in self.held.values() if not held.is_gone), default=None)

    def drain(self) -> None:
        """The service is stopping: a connection stays open while it holds jobs, but does not wait for more."""
        if self.is_waiting or not (self.is_busy or self.held):
            self.close()

    def lost(self) -> None:
        """The connection is gone: the jobs that it held are released at once."""
        desk = self.desk
        if self.pop:
            self.pop.cancel()
        desk.give_back(self.held.values(), self.grant)
        self.held.clear()
        desk.tubes.unuse(self.used)
        for topic in self.watched:
            desk.tubes.ignore(topic)
        desk.producers -= self.has_put
        desk.workers -= self.has_reserved
