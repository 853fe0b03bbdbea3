"""`Plain` carries out commands of dialects by callback, without a task. The commands are answered and counted as by
`Commands`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, Protocol

from msgspec import Raw

from buckets import Job, Shape
from buckets.errors import AlreadyExists, JobQueueError
from buckets.waiting.pollers import Client
from jobqueue.commands.answers import Answer, failure, success
from jobqueue.commands.table import ROOM
from jobqueue.engine.by_callback import New, NumberedPop
from jobqueue.engine.engine import Engine
from jobqueue.schema import inner, params

_DONE = success()
_NAMED: dict[str, inner.Add | params.Finish] = {"add": inner.Add(topic="", body=Raw()), "finish": params.Finish(id="")}

Done = Callable[[list[Answer | None] | None], None]
"""Called later with the answers. If an answer is None, its command must take the complete path; if the list is None,
all commands must."""


class Books(Protocol):
    """Counts and logs answers."""

    def count(self, command: inner.Inner | params.Command, answers: list[Answer], begun: float) -> None:
        """Count answers to commands of the same kind as `command`. `begun`: when they began, by `perf_counter`."""

    def count_done(self, name: str, number: int, begun: float) -> None:
        """Count `number` commands that succeeded; nothing is logged."""


class Plain:
    """Carries out plain commands for the connections of a dialect."""

    def __init__(self, engine: Engine, books: Books, *, is_logged: bool) -> None:
        """`is_logged`: True if each answer is logged; adds and finishes then take the complete path, which logs
        them."""
        self._engine = engine.by_callback
        self._books = books
        self._is_logged = is_logged

    def shape(self, make: Callable[..., params.Add], *arguments: Hashable) -> Shape | None:
        """The shape of all adds that `make` makes with these arguments; they differ only in id, delay and body. Returns
        None if such adds must take the complete path."""
        return self._engine.shape(make, *arguments)

    def add_numbered(self, jobs: Sequence[New], done: Done) -> bool:
        """Add jobs under the next numbers. Returns False if it did nothing and the adds must take the complete path."""
        return not self._is_logged and self._engine.add_numbered(jobs, partial(self._added, time.perf_counter(), done))

    def _added(self, begun: float, done: Done, results: list[int | JobQueueError] | None) -> None:
        if results is None:
            done(None)
            return
        answers = [_added(result) for result in results]
        self._count("add", [answer for answer in answers if answer is not None], begun)
        done(answers)

    def finish(self, ends: Sequence[tuple[str, int | None]], done: Done) -> bool:
        """Finish jobs, given as id and lease. Returns False if it did nothing and the finishes must take the complete
        path."""
        if self._is_logged or not self._engine.is_local:
            return False
        return self._engine.finish(ends, partial(self._finished, time.perf_counter(), len(ends), done))

    def _finished(self, begun: float, number: int, done: Done, outcome: Any) -> None:
        if outcome is None:
            done(None)
            return
        results = [outcome] * number if isinstance(outcome, JobQueueError) else outcome
        answers = [failure(result) if isinstance(result, JobQueueError) else _DONE for result in results]
        self._count("finish", answers, begun)
        done(list(answers))

    def _count(self, name: str, answers: list[Answer], begun: float) -> None:
        if all(answer["success"] for answer in answers):
            self._books.count_done(name, len(answers), begun)
        else:
            self._books.count(_NAMED[name], answers, begun)

    def pop(self, command: inner.Pop, times: int, client: Client, done: Callable[[list[Answer]], None]) -> NumberedPop:
        """Answer a pop of one job, or `times` equal ones in order, as many of them as there are jobs. If there is no
        job, pops that do not wait are all answered as empty, a single pop after its wait; several pops that would wait
        get no answers. `done` is called later with the answers."""
        took = partial(self._popped, command, times, time.perf_counter(), done)
        wait_s = (command.wait or 0) if times == 1 else 0
        return self._engine.pop_numbered(command, times, wait_s, ROOM, client, took)

    def _popped(
        self,
        command: inner.Pop,
        times: int,
        begun: float,
        done: Callable[[list[Answer]], None],
        outcome: tuple[list[Job], list[int]] | JobQueueError,
    ) -> None:
        if isinstance(outcome, JobQueueError):
            answers = [failure(outcome)]
        else:
            pairs = zip(*outcome, strict=True)
            answers = [success(jobs=[job], numbers=[number]) for job, number in pairs]
            if not answers and (times == 1 or not command.wait):
                answers = [success(jobs=[], numbers=[]) for _ in range(times)]
        if answers:
            self._books.count(command, answers, begun)
        done(answers)


def _added(result: int | JobQueueError) -> Answer | None:
    if isinstance(result, int):
        return {"success": True, "number": result}
    return None if isinstance(result, AlreadyExists) else failure(result)
