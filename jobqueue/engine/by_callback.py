"""The engine without tasks: plain adds, finishes and pops, including those of dialects, whose outcomes are reported by
callback.

A command that cannot be done this way, or fails in a way that allows a retry, is left to the caller, which uses the
methods of `Engine` instead. What the jobs of similar adds have in common is made once for all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, cast

from buckets import (
    Added,
    Ask,
    Client,
    Job,
    NewJob,
    Poller,
    Pollers,
    Pool,
    Popped,
    Prepared,
    Shape,
    Waiter,
    Waiting,
    ask_for,
)
from buckets.errors import JobQueueError
from jobqueue.engine.new_jobs import Policies, is_virtual, new_id, new_job, spread_ms
from jobqueue.engine.numbered import Numbered, id_of, number_of
from jobqueue.schema import params
from jobqueue.schema.params import at_ms, ms, ms_or_none

_MOST = 2048  # shapes that each table remembers, of at most 1 KB each

_likeness = attrgetter("topic", "ttr", "priority", "tries", "ttl", "retention", "if_exists")


class Shapes:
    """The shapes of adds under certain policies. An add has one if it is plain: to a topic that is not virtual, without
    key, headers, tags or a back-off of its own."""

    def __init__(self, policies: Policies, shape: Callable[[NewJob], Shape]) -> None:
        """`shape`: makes the shape of a job."""
        self._policies = policies
        self._shape = shape
        self._known: dict[Any, Shape] = {}

    def prepared(self, command: params.Add) -> Prepared | None:
        """The job that an add asks for, or None if no similar add was learned. If one was, the topic and `ttr` of this
        add are known to be valid, too. A command without an id gets one."""
        if command.key or command.headers is not None or command.tags is not None or command.backoff is not None:
            return None
        shape = self._known.get(_likeness(command))
        if shape is None:
            return None
        if command.id is None:
            command.id = new_id()
        later = spread_ms(command) if command.spread else 0
        if command.at is not None:
            when = str(max(at_ms(command.at), 1) + later)
        else:
            when = f"+{ms(command.delay or 0) + later}" if command.delay or later else "+0"
        return Prepared(shape, command.id, when, bytes(command.body))

    def learn(self, command: params.Add) -> bool:
        """Learn the shape of a valid add; returns whether it is plain."""
        if command.key or command.headers is not None or command.tags is not None or command.backoff is not None:
            return False
        if self._policies.has_virtual and is_virtual(self._policies, command):
            return False
        if len(self._known) >= _MOST:
            self._known.clear()
        self._known[_likeness(command)] = self._shape(new_job(self._policies, command, command.id or "", command.topic))
        return True


Done = Callable[[Any], None]
"""Receives the outcome: see buckets/pool/lanes.py."""
New = tuple[Shape, int, bytes]
"""A new job that gets a number: its shape, its delay in ms, its body."""
AddDone = Callable[[list[int | JobQueueError] | None], None]
PopDone = Callable[[list[tuple[Job, int]] | JobQueueError], None]


class ByCallback:
    """The operations of the engine that report by callback. `is_local`: True if changes are local by default."""

    def __init__(
        self,
        pool: Pool,
        waiting: Waiting,
        pollers: Pollers,
        numbered: Numbered,
        policies: Policies,
        *,
        is_local: bool,
    ) -> None:
        self.lanes = pool.lanes
        self.has_one_shard = len(pool.keys) == 1
        self.waiting = waiting
        self.pollers = pollers
        self.is_local = is_local
        self.give_back = pool.unpop_later
        self.report_delivered = pool.report_delivered
        self.numbered = numbered
        self._shape_of = pool.shape
        self._look = pool.look
        self._made: dict[Hashable, Shape | None] = {}
        self.obey(policies)

    def obey(self, policies: Policies) -> None:
        """Use these policies from now on."""
        self._policies = policies
        self.shapes = Shapes(policies, self._shape_of)
        self._made.clear()

    def finish(self, ends: Sequence[tuple[str, int | None]], done: Done) -> bool:
        """End jobs, given as id and lease: see buckets/pool/lanes.py."""

        def took(outcome: Any) -> None:
            if type(outcome) is list:
                self.pollers.finished(ends, outcome)
            done(outcome)

        return self.lanes.finish(ends, took)

    def pop(self, command: params.Pop, room: int, client: Client, done: Done, owner: str = "") -> Pop | None:
        """Reserve ready jobs (up to `room` bytes of them), waiting for one if the command says so. `done` gets the
        outcome later, usually a Popped, unless the pop is cancelled. Returns None if the pop must take the complete
        way. `owner`: the owner of the pop if it waits."""
        topics, worker = command.topics or [command.topic or ""], command.worker or ""
        ask = ask_for(topics, ttr_ms=ms_or_none(command.ttr), worker=worker, room=room)
        pop = Pop(self, self.pollers.begin(worker, client, topics, owner), done)
        if command.wait:
            pop.wait(ask, command.count or 1, command.wait, owner)
            return pop
        if pop.look(ask, command.count or 1):
            return pop
        self.pollers.break_off(pop.poller, is_gone=False)
        return None

    def shape(self, make: Callable[..., params.Add], *arguments: Hashable) -> Shape | None:
        """The shape of all adds that `make` makes with these arguments; they differ only in id, delay and body. None
        for a virtual topic, whose adds must take the complete way."""
        key = make, arguments
        try:
            return self._made[key]
        except KeyError:
            shape = self._shape(make(*arguments))
        if len(self._made) >= _MOST:
            self._made.clear()
        self._made[key] = shape
        return shape

    def _shape(self, command: params.Add) -> Shape | None:
        if self._policies.targets(command.topic):
            return None
        return self._shape_of(new_job(self._policies, command, "", command.topic))

    def add_numbered(self, jobs: Sequence[New], done: AddDone) -> bool:
        """Add jobs under the next numbers; their shapes reject an id that exists. `done` later gets the number or the
        error of each, or None if nothing was done. Returns False, and does nothing, if the jobs must take the complete
        way."""
        counter = self.numbered.counter
        numbers = counter.ready(len(jobs)) if self.is_local else None
        if numbers is None:
            return False
        prepared = [
            Prepared(shape, id_of(number), f"+{delay_ms}", body)
            for number, (shape, delay_ms, body) in zip(numbers, jobs, strict=True)
        ]
        if self.lanes.add(prepared, partial(self._added, numbers, done)):
            return True
        counter.put_back(numbers)
        return False

    def _added(self, numbers: list[int], done: AddDone, outcome: Any) -> None:
        if outcome is None:
            self.numbered.counter.put_back(numbers)
            done(None)
            return
        results = [outcome] * len(numbers) if isinstance(outcome, JobQueueError) else outcome
        pairs = zip(numbers, results, strict=True)
        done([number if isinstance(result, Added) else result for number, result in pairs])

    def pop_numbered(self, ask: Ask, count: int, wait_s: float, client: Client, done: PopDone) -> NumberedPop:
        """Begin to reserve up to `count` jobs within `wait_s`, and to number them. `done` gets the jobs with their
        numbers, or the error, later, unless the pop is cancelled."""
        pop = NumberedPop(self, self.pollers.begin(ask.worker, client, ask.topics), done)
        if wait_s > 0:
            pop.wait(ask, count, wait_s)
        else:
            self._look(ask, count, pop.take)
        return pop


class Pop:
    """A pop in flight. Many may be waiting, so this object is small."""

    __slots__ = ("_done", "_engine", "_waiter", "poller")

    def __init__(self, engine: ByCallback, poller: Poller, done: Done) -> None:
        self._engine = engine
        self._done: Done | None = done  # None once it is over
        self._waiter: Waiter | None = None
        self.poller = poller

    def look(self, ask: Ask, count: int) -> bool:
        """Look once for jobs. Returns False, and does nothing, if the pop must take the complete way."""
        return self._engine.lanes.pop(ask, count, self.take)

    def wait(self, ask: Ask, count: int, wait_s: float, owner: str = "") -> None:
        """Wait up to `wait_s` seconds for jobs; unlike `look`, this is always possible."""
        self._waiter = self._engine.waiting.begin(ask, count, wait_s, self.take, owner)

    def take(self, outcome: Any) -> None:
        """Receive the outcome."""
        done, self._done = self._done, None
        found = type(outcome) is Popped
        if done is None:
            if found:
                self._engine.give_back(outcome.jobs)
            return
        if found:
            if self._waiter is None:
                self._engine.report_delivered(outcome.jobs)
            self._engine.pollers.end(self.poller, outcome.jobs)
        else:
            self._engine.pollers.break_off(self.poller, is_gone=False)
        done(outcome)

    def cancel(self, *, is_gone: bool = True) -> None:
        """Cancel the pop, whose answer is no longer wanted; jobs that are on their way are returned. `is_gone`: True if
        the client hung up. Does nothing if the pop is over."""
        if self._done is None:
            return
        self._done = None
        self._engine.pollers.break_off(self.poller, is_gone=is_gone)
        if self._waiter is not None:
            self._engine.waiting.cancel(self._waiter)


class NumberedPop(Pop):
    """A pop in flight whose jobs get numbers."""

    __slots__ = ("_numbering",)

    def __init__(self, engine: ByCallback, poller: Poller, done: PopDone) -> None:
        super().__init__(engine, poller, partial(self._number, done))
        self._numbering: asyncio.Task[list[int]] | None = None

    def cancel(self, *, is_gone: bool = True) -> None:
        """As for any pop, also while the jobs are numbered."""
        numbering, self._numbering = self._numbering, None
        if numbering:
            numbering.cancel()
        super().cancel(is_gone=is_gone)

    def _number(self, done: PopDone, outcome: Popped | JobQueueError) -> None:
        if isinstance(outcome, JobQueueError):
            done(outcome)
            return
        jobs = outcome.jobs
        numbers = [number_of(job, also_copies=False) for job in jobs]
        if None in numbers:  # some of the jobs need an alias
            self._numbering = asyncio.get_running_loop().create_task(self._engine.numbered.numbers(jobs, "jobs"))
            self._numbering.add_done_callback(partial(self._take_numbers, done, jobs))
        else:
            done(list(zip(jobs, cast(list[int], numbers), strict=True)))

    def _take_numbers(self, done: PopDone, jobs: list[Job], numbering: asyncio.Task[list[int]]) -> None:
        is_wanted, self._numbering = self._numbering is not None, None
        error = asyncio.CancelledError() if numbering.cancelled() else numbering.exception()
        if is_wanted and error is None:
            done(list(zip(jobs, numbering.result(), strict=True)))
            return
        self._engine.give_back(jobs)
        if is_wanted and isinstance(error, JobQueueError):
            done(error)
        elif isinstance(error, Exception) and not isinstance(error, JobQueueError):
            raise error
