"""A connection: the tubes that it uses and watches, and the jobs that it holds, which go back when it closes."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any

import structlog

from buckets import Job, State, Tag
from jobqueue.dialect_settings import Beanstalkd
from jobqueue.protocols import Dialect
from jobqueue.protocols.beanstalkd import priorities, replies
from jobqueue.protocols.beanstalkd.parser import PUT, Parser, Request
from jobqueue.protocols.beanstalkd.tubes import DEFAULT, Names, Tubes
from jobqueue.schema import inner
from jobqueue.wires.stream import Stream, Streams

log = structlog.get_logger()

_MOST_PUTS = 64  # that go to Redis together
_LONGEST_S = 86_400.0  # of a lease
_RESERVED = State.RESERVED

Command = Callable[..., Awaitable[bytes]]
"""Answers a request: given the connection and the arguments."""
Commands = Mapping[str, Command]


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
        """It had no time to run: it was finished when it was popped."""
        self.ttr_s = _LONGEST_S if self.is_gone else kind.ttr / 1000
        self.ends = now + self.ttr_s

    def new_note(self, desk: Desk, level: int, priority: int, delay: int | None = None) -> bytes | None:
        """The note that it gets with another priority and delay (None: as before); None: that of another dialect
        stays."""
        if priorities.is_foreign(self.note):
            return None
        levels = desk.options.levels
        kept_delay = priorities.read(levels, self.level, self.note)[1]
        return priorities.written(levels, level, priority, kept_delay if delay is None else delay)


class Desk:
    """What the connections of a dialect in this process share."""

    def __init__(self, dialect: Dialect[Beanstalkd], streams: Streams, commands: Commands) -> None:
        self.dialect = dialect
        self.streams = streams
        self.commands = commands
        self.tubes = Tubes()
        self.counts: Counter[str] = Counter()
        """How often each command came."""
        self.producers = 0
        """Connections that have put a job."""
        self.workers = 0
        """Connections that have reserved one."""
        self.waiting = 0
        """Reserves in progress."""
        self._returning: set[asyncio.Task[None]] = set()
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

    def give_back(self, jobs: Iterable[Held]) -> None:
        """Release the jobs of a connection that is closed, at once, without counting as a try."""
        releases = [
            inner.Release(id=held.id, lease=held.lease, delay=0, attempt=False) for held in jobs if not held.is_gone
        ]
        if releases:
            task = asyncio.create_task(self._release(releases))
            self._returning.add(task)
            task.add_done_callback(self._returning.discard)

    async def _release(self, releases: list[inner.Release]) -> None:
        answers = await asyncio.gather(*map(self.dialect.ask, releases))
        kept = sum(replies.of_failure(answer) is replies.INTERNAL_ERROR for answer in answers if not answer["success"])
        if kept:  # they come back at the end of their TTR
            log.warning("jobs.kept", jobs=kept)

    async def returned(self) -> None:
        """Wait until all of them are back."""
        while self._returning:
            await asyncio.wait(self._returning)

    def first_watched(self) -> tuple[str, ...]:
        """What a new connection watches; one object for all of them."""
        topic = self.names.topic(DEFAULT)
        if topic and self._watches_default[0] != topic:
            self._watches_default = (topic,)
        return self._watches_default


class Connection(Stream[Request]):
    """One connection of a client."""

    may_be_idle = True

    __slots__ = ("_ahead", "_parser", "desk", "has_put", "has_reserved", "held", "used", "watched")

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
        self._parser = Parser()
        self._ahead: Request | None = None  # what came behind a run of puts

    def entered(self) -> None:
        """It may stay."""
        tubes = self.desk.tubes
        tubes.use(self.used)
        tubes.watch(self.used)

    @property
    def now(self) -> float:
        """Loop time."""
        return self._loop.time()

    @property
    def is_draining(self) -> bool:
        """Whether the service stops."""
        return self.desk.streams.draining

    def take(self) -> Request | None:
        """The next request."""
        if self._ahead is not None:
            ahead, self._ahead = self._ahead, None
            return ahead
        return self._parser.take(self.received, self.desk.options.max_job_bytes) if self.received else None

    def _run_of_puts(self, first: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """The arguments of the puts that were sent in a row: these go to Redis together."""
        run = [first]
        while len(run) < _MOST_PUTS and (ahead := self.take()) is not None:
            if ahead[0] != PUT:
                self._ahead = ahead
                break
            run.append(ahead[1])
        return run

    def is_amid(self) -> bool:
        """Whether a request has begun and is not whole."""
        return bool(self.received) or self._parser.is_amid

    async def answer(self, request: Request) -> None:
        """Answer a request."""
        name, arguments = request
        if name == PUT:
            arguments = (self._run_of_puts(arguments),)
        self.desk.counts[name] += len(arguments[0]) if name == PUT else 1
        reply = await self.desk.commands[name](self, *arguments)
        if reply:
            self.write(reply)

    def holds(self, number: int) -> Held | None:
        """The job that it holds under this number; a lease that has ended holds nothing."""
        held = self.held.get(number)
        if held is not None and held.ends <= self.now:
            del self.held[number]
            return None
        return held

    def earliest_end(self) -> float | None:
        """When the first of the leases that it holds ends, in loop time."""
        now = self.now
        for number in [number for number, held in self.held.items() if held.ends <= now]:
            del self.held[number]
        return min((held.ends for held in self.held.values() if not held.is_gone), default=None)

    @contextlib.contextmanager
    def wait(self) -> Iterator[None]:
        """It waits for a job while the block runs. Raises ConnectionError when its client sends no more."""
        if self.has_ended:
            raise ConnectionResetError("the client is gone")
        desk, watched = self.desk, self.watched
        self.is_waiting = True
        desk.waiting += 1
        desk.tubes.waiting.update(watched)
        try:
            yield
        finally:
            self.is_waiting = False
            desk.waiting -= 1
            desk.tubes.wait_no_more(watched)

    def drain(self) -> None:
        """The service stops: a connection stays while it holds jobs, but does not wait for more."""
        if self.is_waiting or not (self.is_busy or self.held):
            self.close()

    def lost(self) -> None:
        """The connection is gone: what it held goes back at once."""
        desk = self.desk
        desk.give_back(self.held.values())
        self.held.clear()
        desk.tubes.unuse(self.used)
        for topic in self.watched:
            desk.tubes.ignore(topic)
        desk.producers -= self.has_put
        desk.workers -= self.has_reserved
