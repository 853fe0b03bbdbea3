"""The engine's fast path: plain adds, finishes and pops, whose outcome comes by callback, without a task.

Whatever it does not take, and whatever does not simply succeed, is left to the complete way, the methods of `Engine`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, cast

from buckets import Added, Job, Pollers, Pool, Popped, Prepared, Shape, Waiter, Waiting, ask_for
from buckets.errors import JobQueueError
from buckets.pollers import Client, Poller
from jobqueue.engine.new_jobs import new_job
from jobqueue.engine.numbered import Numbered, id_of, number_of
from jobqueue.engine.policies import Policies
from jobqueue.schema import inner, params
from jobqueue.schema.params import ms_or_none

_MOST_SHAPES = 256

Ends = Sequence[tuple[str, int | None]]
"""Jobs to finish, as id and lease."""
New = tuple[Shape, int, bytes]
"""A new job: its shape, its delay in ms, its body."""
AddDone = Callable[[list[int | JobQueueError] | None], None]
EndDone = Callable[[list[str | JobQueueError] | None], None]
PopDone = Callable[[tuple[list[Job], list[int]] | JobQueueError], None]


class Fast:
    """What the engine does without a task."""

    def __init__(
        self,
        pool: Pool,
        waiting: Waiting,
        pollers: Pollers,
        numbered: Numbered,
        policies: Callable[[], Policies],
        *,
        is_local: bool,
    ) -> None:
        """`policies`: those of now. `is_local`: whether changes that ask for nothing else are local."""
        self._pool = pool
        self._waiting = waiting
        self._pollers = pollers
        self._numbered = numbered
        self._policies = policies
        self.is_local = is_local
        """Whether changes with the default durability may go this way."""
        self._shapes: dict[Hashable, Shape | None] = {}
        self._shaped_by: Policies | None = None

    def shape(self, make: Callable[..., params.Add], *arguments: Hashable) -> Shape | None:
        """What all adds share that `make` makes with these arguments; they differ in id, delay and body. None for a
        virtual topic, which takes the complete way."""
        policies = self._policies()
        if policies is not self._shaped_by:
            self._shapes.clear()
            self._shaped_by = policies
        key = make, arguments
        try:
            return self._shapes[key]
        except KeyError:
            shape = self._shape(policies, make(*arguments))
        if len(self._shapes) >= _MOST_SHAPES:
            self._shapes.clear()
        self._shapes[key] = shape
        return shape

    def _shape(self, policies: Policies, command: params.Add) -> Shape | None:
        if policies.targets(command.topic):
            return None
        return self._pool.shape(new_job(policies, command, "", command.topic))

    def add_numbered(self, jobs: Sequence[New], done: AddDone) -> bool:
        """Add jobs under the next numbers; their shapes reject an id that exists. `done` gets the number or the error
        of each, later; None: nothing was done. Returns False, and does nothing, for what takes the complete way."""
        if not (self.is_local and self._pool.lanes.is_open):
            return False
        counter = self._numbered.counter
        numbers = counter.ready(len(jobs))
        if numbers is None:
            return False
        prepared = [
            Prepared(shape, id_of(number), f"+{delay_ms}", body)
            for number, (shape, delay_ms, body) in zip(numbers, jobs, strict=True)
        ]
        if self._pool.lanes.add(prepared, partial(self._added, numbers, done)):
            return True
        counter.put_back(numbers)
        return False

    def _added(self, numbers: list[int], done: AddDone, outcome: Any) -> None:
        if outcome is None:
            self._numbered.counter.put_back(numbers)
            done(None)
            return
        results = [outcome] * len(numbers) if isinstance(outcome, JobQueueError) else outcome
        done([number if isinstance(result, Added) else result for number, result in zip(numbers, results, strict=True)])

    def finish(self, ends: Ends, done: EndDone) -> bool:
        """End jobs. `done` gets the new state or the error of each, later; None: take the complete way. Returns False,
        and does nothing, for what takes the complete way."""
        return self.is_local and self._pool.lanes.finish(ends, partial(self._finished, ends, done))

    def _finished(self, ends: Ends, done: EndDone, outcome: Any) -> None:
        if isinstance(outcome, JobQueueError):
            done([outcome] * len(ends))
            return
        if outcome is not None:
            self._pollers.finished(ends, outcome)
        done(outcome)

    def pop(self, command: inner.Pop, count: int, wait_s: float, room: int, client: Client, done: PopDone) -> BegunPop:
        """Begin to reserve up to `count` jobs within `wait_s`, and to number them, as `Engine.pop_numbered` does, for a
        connection. `done` gets the jobs and their numbers, or the error, later, unless it is cancelled before."""
        begun = BegunPop(self._pool, self._waiting, self._pollers, self._numbered, command.numbered, done)
        begun.begin(command, count, wait_s, room, client)
        return begun


class BegunPop:
    """A pop in progress. There are many that wait, so it is small."""

    __slots__ = (
        *("_done", "_numbered", "_numbering", "_poller", "_pollers", "_pool", "_waiter", "_waiting", "_which"),
    )

    def __init__(
        self, pool: Pool, waiting: Waiting, pollers: Pollers, numbered: Numbered, which: str, done: PopDone
    ) -> None:
        self._pool = pool
        self._waiting = waiting
        self._pollers = pollers
        self._numbered = numbered
        self._which = which
        self._done = done
        self._poller: Poller
        self._waiter: Waiter | None = None
        self._numbering: asyncio.Task[None] | None = None

    def begin(self, command: inner.Pop, count: int, wait_s: float, room: int, client: Client) -> None:
        """Begin. Called once."""
        worker, topics = command.worker or "", command.topics or [command.topic or ""]
        ask = ask_for(topics, ttr_ms=ms_or_none(command.ttr), worker=worker, room=room, by_priority=command.by_priority)
        self._poller = self._pollers.begin(worker, client, topics)
        self._waiter = self._waiting.begin(ask, count, wait_s, self._popped)

    def cancel(self) -> None:
        """Its client is gone: what is reserved for it, or will be, goes back."""
        if self._waiter:
            self._waiting.cancel(self._waiter)
            self._waiter = None
            self._pollers.break_off(self._poller, is_gone=True)
        elif self._numbering:
            self._numbering.cancel()

    def _popped(self, outcome: Popped | JobQueueError) -> None:
        self._waiter = None
        if isinstance(outcome, JobQueueError):
            self._pollers.break_off(self._poller, is_gone=False)
            self._done(outcome)
            return
        jobs, which = outcome.jobs, self._which
        self._pollers.end(self._poller, jobs)
        numbers = [number_of(job, also_copies=which == "copies") for job in jobs] if which else []
        if None in numbers:
            self._numbering = asyncio.get_running_loop().create_task(self._number(jobs))
        else:
            self._done((jobs, cast(list[int], numbers)))

    async def _number(self, jobs: list[Job]) -> None:
        """Some of the jobs need an alias."""
        outcome: tuple[list[Job], list[int]] | JobQueueError
        try:
            outcome = jobs, await self._numbered.numbers(jobs, self._which)
        except BaseException as error:
            self._pool.unpop_later(jobs)
            if not isinstance(error, JobQueueError):
                raise
            outcome = error
        self._numbering = None
        self._done(outcome)
