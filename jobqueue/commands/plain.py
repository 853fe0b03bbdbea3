"""`Plain` carries out commands of dialects by callback, without a task. The commands are answered and counted as by
`Commands`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, Protocol, cast

from msgspec import Raw

from buckets import Ask, Job, Shape
from buckets.errors import AlreadyExists, JobQueueError
from buckets.waiting.pollers import Client
from jobqueue.commands.answers import Answer, failure, success
from jobqueue.engine.by_callback import New, NumberedPop
from jobqueue.engine.engine import Engine
from jobqueue.schema import inner, params

Done = Callable[[list[Any] | None], None]
"""Called later with the outcomes: a JobQueueError for a command that was refused, None for one that must take the
complete path. If the list is None, all commands must."""

Handed = list[tuple[Job, int] | None]
"""The job and its number, or None, for each pop that is answered."""

_DONE = success()
_NAMED: dict[str, inner.Add | params.Finish] = {"add": inner.Add(topic="", body=Raw()), "finish": params.Finish(id="")}


class Books(Protocol):
    """Counts and logs answers."""

    def count(self, command: inner.Inner | params.Command, answers: list[Answer], begun: float) -> None:
        """Count answers to commands of the same kind as `command`. `begun`: when they began, by `perf_counter`."""

    def count_done(self, name: str, number: int, begun: float, *, waiting: bool = False) -> None:
        """Count `number` commands that succeeded; nothing is logged. `waiting`: True for pops that may wait."""


class Plain:
    """Carries out plain commands for the connections of a dialect."""

    def __init__(self, engine: Engine, books: Books, *, is_noted: bool) -> None:
        """`is_noted`: True if each answer is logged or traced; adds and finishes then take the complete path, which
        does so."""
        self._engine = engine.by_callback
        self._books = books
        self._is_noted = is_noted

    @property
    def is_in_order(self) -> bool:
        """Whether the outcomes of commands come in the order in which the commands began: there is one shard."""
        return self._engine.has_one_shard

    def shape(self, make: Callable[..., params.Add], *arguments: Hashable) -> Shape | None:
        """The shape of all adds that `make` makes with these arguments; they differ only in id, delay and body. Returns
        None if such adds must take the complete path."""
        return self._engine.shape(make, *arguments)

    def add_numbered(self, jobs: Sequence[New], done: Done) -> bool:
        """Add jobs under the next numbers; the outcome of each is its number. Returns False if it did nothing and the
        adds must take the complete path."""
        return not self._is_noted and self._engine.add_numbered(jobs, partial(self._added, time.perf_counter(), done))

    def _added(self, begun: float, done: Done, results: list[int | JobQueueError] | None) -> None:
        if results is not None and not self._count("add", results, begun):
            done([None if isinstance(result, AlreadyExists) else result for result in results])
        else:
            done(results)

    def finish(self, ends: Sequence[tuple[str, int | None]], done: Done) -> bool:
        """Finish jobs, given as id and lease. Returns False if it did nothing and the finishes must take the complete
        path."""
        if self._is_noted or not self._engine.is_local:
            return False
        return self._engine.finish(ends, partial(self._finished, time.perf_counter(), len(ends), done))

    def _finished(self, begun: float, number: int, done: Done, outcome: Any) -> None:
        results = [outcome] * number if isinstance(outcome, JobQueueError) else outcome
        if results is not None:
            self._count("finish", results, begun)
        done(results)

    def _count(self, name: str, results: Sequence[object], begun: float) -> bool:
        """Count adds or finishes, except adds whose number is taken: these are not over. Returns whether all were
        carried out."""
        errors = [result for result in results if isinstance(result, JobQueueError)]
        if not errors:
            self._books.count_done(name, len(results), begun)
            return True
        answers = [failure(error) for error in errors if name != "add" or not isinstance(error, AlreadyExists)]
        answers += [_DONE] * (len(results) - len(errors))
        self._books.count(_NAMED[name], answers, begun)
        return False

    def pop(
        self, ask: Ask, times: int, wait_s: float, client: Client, done: Callable[[Handed | JobQueueError], None]
    ) -> NumberedPop:
        """Carry out `times` equal pops of one job each, in order. `done` is called later: with a job for as many of
        them as there are jobs. If there is no job at all, pops that do not wait find none, and so does a single pop at
        the end of its wait; several pops that would have to wait have no outcome, and the list is empty."""
        took = partial(self._popped, ask, times, wait_s > 0, time.perf_counter(), done)
        return self._engine.pop_numbered(ask, times, wait_s if times == 1 else 0, client, took)

    def _popped(
        self,
        ask: Ask,
        times: int,
        waits: bool,
        begun: float,
        done: Callable[[Handed | JobQueueError], None],
        outcome: list[tuple[Job, int]] | JobQueueError,
    ) -> None:
        handed = cast(Handed | JobQueueError, outcome)
        if not outcome and (times == 1 or not waits):
            handed = [None] * times
        if self._is_noted or isinstance(handed, JobQueueError):
            self._count_pops(ask, waits, begun, handed)
        elif handed:
            self._books.count_done("pop", len(handed), begun, waiting=waits)
        done(handed)

    def _count_pops(self, ask: Ask, waits: bool, begun: float, handed: Handed | JobQueueError) -> None:
        """Count pops that failed, or whose answers are noted."""
        if isinstance(handed, JobQueueError):
            answers = [failure(handed)]
        else:
            answers = [success(jobs=[each[0]] if each else []) for each in handed]
        self._books.count(inner.Pop(topics=[*ask.topics], wait=math.inf if waits else 0), answers, begun)
