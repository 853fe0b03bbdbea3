"""The engine without tasks: adds, finishes and pops of plain form, whose outcomes come by callback.

What cannot be done that way, or fails in a way that allows to repeat it, is left to the caller, who takes the methods
of `Engine`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from buckets import Ask, Client, Poller, Pollers, Pool, Popped, Waiter, Waiting, ask_for
from jobqueue.engine.policies import Policies
from jobqueue.engine.shapes import Shapes
from jobqueue.schema import params
from jobqueue.schema.params import ms_or_none

Done = Callable[[Any], None]
"""Takes the outcome: see buckets/pool/lanes.py."""


class ByCallback:
    """What the engine does by callback. `is_local`: whether changes are local where their commands do not say so."""

    def __init__(self, pool: Pool, waiting: Waiting, pollers: Pollers, policies: Policies, *, is_local: bool) -> None:
        self.lanes = pool.lanes
        self.waiting = waiting
        self.pollers = pollers
        self.is_local = is_local
        self.has_one_shard = len(pool.keys) == 1
        self.give_back = pool.unpop_later
        self.report_delivered = pool.report_delivered
        self._shape = pool.shape
        self.shapes = Shapes(policies, pool.shape)

    def obey(self, policies: Policies) -> None:
        """Take other policies from now on."""
        self.shapes = Shapes(policies, self._shape)

    def finish(self, ends: Sequence[tuple[str, int | None]], done: Done) -> bool:
        """End jobs, given as id and lease: see buckets/pool/lanes.py."""

        def took(outcome: Any) -> None:
            if type(outcome) is list:
                self.pollers.finished(ends, outcome)
            done(outcome)

        return self.lanes.finish(ends, took)

    def pop(self, command: params.Pop, room: int, client: Client, done: Done, owner: str = "") -> Pop | None:
        """Reserve ready jobs (up to `room` bytes of them), waiting for one where the command says so. `done` gets the
        outcome later, a Popped most of all, unless the pop is cancelled. None: it is not taken. `owner`: whose pop it
        is, should it wait."""
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


class Pop:
    """A pop in flight. There may be many that wait, so it is small."""

    __slots__ = ("_done", "_engine", "_waiter", "poller")

    def __init__(self, engine: ByCallback, poller: Poller, done: Done) -> None:
        self._engine = engine
        self._done: Done | None = done  # None: it is over
        self._waiter: Waiter | None = None
        self.poller = poller

    def look(self, ask: Ask, count: int) -> bool:
        """Look once. Returns whether it is taken."""
        return self._engine.lanes.pop(ask, count, self._take)

    def wait(self, ask: Ask, count: int, wait_s: float, owner: str = "") -> None:
        """Wait up to `wait_s` seconds; it is always taken."""
        self._waiter = self._engine.waiting.begin(ask, count, wait_s, self._take, owner)

    def _take(self, outcome: Any) -> None:
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
        """Its answer is not wanted any more; jobs that are on their way go back. `is_gone`: the client hung up. Does
        nothing when it is over."""
        if self._done is None:
            return
        self._done = None
        self._engine.pollers.break_off(self.poller, is_gone=is_gone)
        if self._waiter is not None:
            self._engine.waiting.cancel(self._waiter)
