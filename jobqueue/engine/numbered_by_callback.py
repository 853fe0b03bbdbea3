"""Jobs with numbers, without tasks: adds and pops of dialects, whose outcomes come by callback."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, cast

from buckets import Added, Client, Job, Pool, Popped, Prepared, Shape, ask_for
from buckets.errors import JobQueueError
from jobqueue.engine.by_callback import ByCallback, Pop
from jobqueue.engine.new_jobs import new_job
from jobqueue.engine.numbered import Numbered, id_of, number_of
from jobqueue.engine.policies import Policies
from jobqueue.schema import inner, params
from jobqueue.schema.params import ms_or_none

_MOST_SHAPES = 256

New = tuple[Shape, int, bytes]
"""A new job: its shape, its delay in ms, its body."""
AddDone = Callable[[list[int | JobQueueError] | None], None]
PopDone = Callable[[tuple[list[Job], list[int]] | JobQueueError], None]


class NumberedByCallback:
    """What the engine does with numbered jobs by callback."""

    def __init__(
        self, pool: Pool, by_callback: ByCallback, numbered: Numbered, policies: Callable[[], Policies]
    ) -> None:
        """`policies`: those of now."""
        self._by_callback = by_callback
        self._numbered = numbered
        self._policies = policies
        self._shape_of = pool.shape
        self._may_add = by_callback.is_local and len(pool.keys) == 1  # of several shards, `Pool` notes what is ready
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
        return self._shape_of(new_job(policies, command, "", command.topic))

    def add(self, jobs: Sequence[New], done: AddDone) -> bool:
        """Add jobs under the next numbers; their shapes reject an id that exists. `done` gets the number or the error
        of each, later; None: nothing was done. Returns False, and does nothing, for what takes the complete way."""
        lanes, counter = self._by_callback.lanes, self._numbered.counter
        numbers = counter.ready(len(jobs)) if self._may_add else None
        if numbers is None:
            return False
        prepared = [
            Prepared(shape, id_of(number), f"+{delay_ms}", body)
            for number, (shape, delay_ms, body) in zip(numbers, jobs, strict=True)
        ]
        if lanes.add(prepared, partial(self._added, numbers, done)):
            return True
        counter.put_back(numbers)
        return False

    def _added(self, numbers: list[int], done: AddDone, outcome: Any) -> None:
        if outcome is None:
            self._numbered.counter.put_back(numbers)
            done(None)
            return
        results = [outcome] * len(numbers) if isinstance(outcome, JobQueueError) else outcome
        pairs = zip(numbers, results, strict=True)
        done([number if isinstance(result, Added) else result for number, result in pairs])

    def pop(
        self, command: inner.Pop, count: int, wait_s: float, room: int, client: Client, done: PopDone
    ) -> NumberedPop:
        """Begin to reserve up to `count` jobs (and `room` bytes of them) within `wait_s`, and to number them, as
        `Engine.pop_numbered` does. `done` gets the jobs and their numbers, or the error, later, unless the pop is
        cancelled."""
        topics, worker = command.topics or [command.topic or ""], command.worker or ""
        ask = ask_for(topics, ttr_ms=ms_or_none(command.ttr), worker=worker, room=room, by_priority=command.by_priority)
        engine = self._by_callback
        pop = NumberedPop(engine.give_back, self._numbered, command.numbered, done)
        pop.pop = Pop(engine, engine.pollers.begin(worker, client, topics), pop.take)
        pop.pop.wait(ask, count, wait_s)
        return pop


class NumberedPop:
    """A pop in flight. There may be many that wait, so it is small."""

    __slots__ = ("_done", "_give_back", "_numbered", "_numbering", "_which", "pop")

    def __init__(
        self, give_back: Callable[[Sequence[Job]], None], numbered: Numbered, which: str, done: PopDone
    ) -> None:
        self._give_back = give_back
        self._numbered = numbered
        self._which = which
        self._done = done
        self._numbering: asyncio.Task[list[int]] | None = None
        self.pop: Pop | None = None
        """Until it is answered."""

    def cancel(self) -> None:
        """Its client is gone: what is reserved for it, or will be, goes back."""
        if self.pop:
            self.pop.cancel()
        elif self._numbering:
            self._numbering.cancel()
            self._numbering = None

    def take(self, outcome: Popped | JobQueueError) -> None:
        """The outcome of the pop."""
        self.pop = None
        if isinstance(outcome, JobQueueError):
            self._done(outcome)
            return
        jobs, which = outcome.jobs, self._which
        numbers = [number_of(job, also_copies=which == "copies") for job in jobs] if which else []
        if None in numbers:  # some of the jobs need an alias
            self._numbering = asyncio.get_running_loop().create_task(self._numbered.numbers(jobs, which))
            self._numbering.add_done_callback(partial(self._take_numbers, jobs))
        else:
            self._done((jobs, cast(list[int], numbers)))

    def _take_numbers(self, jobs: list[Job], numbering: asyncio.Task[list[int]]) -> None:
        is_wanted, self._numbering = self._numbering is not None, None
        error = asyncio.CancelledError() if numbering.cancelled() else numbering.exception()
        if is_wanted and error is None:
            self._done((jobs, numbering.result()))
            return
        self._give_back(jobs)
        if is_wanted and isinstance(error, JobQueueError):
            self._done(error)
        elif isinstance(error, Exception) and not isinstance(error, JobQueueError):
            raise error
