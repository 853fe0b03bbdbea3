"""A system that the load generator drives over plain sockets, and that does all the works in the same way."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import ClassVar

from bench.compare import (
    BATCHERS,
    CONSUMERS,
    FAR_S,
    PARKING_S,
    Deadline,
    Late,
    Parked,
    Run,
    System,
    WrongError,
    check,
    check_times,
    job_id,
)
from bench.compare.load.compiled import Load, load
from bench.compare.load.conversations import connect
from bench.compare.load.parked_consumers import Lot, park
from bench.compare.load.waiting import CONSUMERS_OF, READY_OF

_PAGE = 500  # jobs in a request that prepares a work
_BATCH = 100
_PIECE = 1 << 16
_LOOK_S = 0.02
_PATIENCE_S = 5
_SPREAD_US = 7_013_000  # between the due times of a batch


class Driven(System):
    DIALECT: ClassVar[str]  # of the load generator
    ADDS_A_SECOND: ClassVar[int]  # at least, when a work is prepared
    CYCLE_JOINED: ClassVar[bool] = True  # consumers of whole cycles wait; else they ask again and again

    _next = 0  # number of the next id

    @abstractmethod
    def _address(self) -> str:
        """Its port, or the path of its socket."""

    @abstractmethod
    def _costs(self) -> tuple[int, int]:
        """The bytes, and the connections to a store, which consumers that wait add to."""

    @abstractmethod
    def _waiting(self) -> int:
        """Consumers waiting now."""

    def _due_jobs_move(self) -> AbstractContextManager[None]:
        """Holds while jobs have to become due."""
        return nullcontext()

    def add_one(self, seconds: float, connections: int) -> Run:
        return self._add(seconds, connections, 1)

    def add_batch(self, seconds: float, size: int) -> Run:
        return self._add(seconds, BATCHERS, size)

    def add_spread(self, seconds: float, size: int) -> Run:
        return self._add(seconds, BATCHERS, size, step_us=_SPREAD_US, wrap=size)

    def fill(self, jobs: int) -> None:
        self._put(jobs, delay_ms=FAR_S * 1000, step_us=1000)

    def pop_finish_one(self, jobs: int, connections: int) -> Run:
        return self._work_off(jobs, takers=connections)

    def finish_and_next(self, jobs: int, connections: int) -> Run:
        return self._work_off(jobs, takers=connections, joined=1)

    def pop_finish_batch(self, jobs: int, size: int) -> Run:
        return self._work_off(jobs, takers=BATCHERS, size=size)

    def cycle(self, jobs: int, size: int, connections: int = BATCHERS) -> Run:
        first = self._reserve_ids(jobs)
        half, joined = connections // 2, int(self.CYCLE_JOINED)
        with self._due_jobs_move(), self._all_finished(jobs):
            run, done = self._timed_load(
                jobs, adders=half, takers=half, joined=joined, size=size, jobs=jobs, first=first, delay_ms=1
            )
        _check(done, first, jobs)
        return run

    def lateness(self, rate: int, seconds: float) -> Late:
        jobs, step_us = round(rate * seconds), 1_000_000 // rate
        with self._due_jobs_move():
            first, deadline = self._put_due(jobs, step_us)
            with self._all_finished(jobs):
                done = self._load(takers=CONSUMERS, joined=1, jobs=jobs, first=first)
        _check(done, first, jobs)
        deadline.check()
        due = {job_id(first + place): deadline.ms + place * step_us // 1000 for place in range(jobs)}
        return Late(check_times([at_ms - due[job] for job, at_ms in zip(done.got, done.at_ms, strict=True)]))

    def burst(self, jobs: int) -> Run:
        with self._due_jobs_move():
            first, deadline = self._put_due(jobs, 0)
            time.sleep(max(0.0, deadline.ms / 1000 - time.time() - PARKING_S))
            with self._all_finished(jobs):
                run, done = self._timed_load(jobs, takers=CONSUMERS, joined=1, size=_BATCH, jobs=jobs, first=first)
        _check(done, first, jobs)
        deadline.check()
        ms = check_times([at_ms - deadline.ms for at_ms in done.at_ms])
        return replace(run, seconds=max(ms) / 1000)

    def parked(self, number: int) -> Parked:
        with connect(self._address()) as producer:

            def add() -> None:
                producer.sendall(READY_OF[self.DIALECT](job_id(self._reserve_ids(1))))
                producer.recv(_PIECE)

            lot = Lot(partial(connect, self._address()), CONSUMERS_OF[self.DIALECT], self._waiting, self._costs, add)
            return park(number, lot)

    def _finished(self) -> int | None:
        """How many jobs were finished so far, where it can tell."""
        return None

    @contextmanager
    def _all_finished(self, jobs: int) -> Iterator[None]:
        """Raises WrongError unless just so many jobs are finished meanwhile, or a moment later: a finish that is sent
        with a waiting pop is not answered before it."""
        before = self._finished()
        yield
        end = time.monotonic() + _PATIENCE_S
        while (after := self._finished()) is not None and before is not None and after - before != jobs:
            if time.monotonic() > end or after - before > jobs:
                raise WrongError(f"of {jobs} jobs {after - before} were finished")
            time.sleep(_LOOK_S)

    def _reserve_ids(self, jobs: int) -> int:
        self._next += jobs
        return self._next - jobs

    def _load(self, **plan: int) -> Load:
        return load(self.DIALECT, self._address(), **plan)

    def _timed_load(self, count: int, **plan: int) -> tuple[Run, Load]:
        """A run of the generator, with its own seconds. `count` 0: the number of jobs that it added."""
        results: list[Load] = []

        def work() -> int:
            results.append(self._load(**plan))
            return count or results[0].added

        run, done = self.timed(work), results[0]
        return replace(run, seconds=done.seconds, load_us=done.cpu_us), done

    def _add(self, seconds: float, connections: int, size: int, **more: int) -> Run:
        run, done = self._timed_load(
            0,
            adders=connections,
            size=size,
            for_ms=round(seconds * 1000),
            first=self._next,
            delay_ms=FAR_S * 1000,
            **more,
        )
        self._next += done.added
        return run

    def _put(self, jobs: int, **plan: int) -> int:
        """Add jobs, in the fastest way; returns the number of the first."""
        first = self._reserve_ids(jobs)
        done = self._load(adders=BATCHERS, size=_PAGE, jobs=jobs, first=first, **plan)
        if done.added != jobs:
            raise WrongError(f"{done.added} of {jobs} jobs were added")
        return first

    def _put_due(self, jobs: int, step_us: int) -> tuple[int, Deadline]:
        """Add jobs that fall due from a deadline on, one step after the other; the first one's number, the deadline."""
        deadline = Deadline(jobs, self.ADDS_A_SECOND)
        first = self._put(jobs, at_ms=deadline.ms, step_us=step_us)
        deadline.added()
        return first, deadline

    def _make_ready(self, jobs: int, retention_s: int) -> int:
        """Add jobs that may be popped at once; returns the number of the first."""
        return self._put(jobs, retention=retention_s)

    def _work_off(self, jobs: int, *, retention_s: int = 0, **plan: int) -> Run:
        first = self._make_ready(jobs, retention_s)
        with self._all_finished(jobs):
            run, done = self._timed_load(jobs, jobs=jobs, first=first, **plan)
        _check(done, first, jobs)
        return run


def _check(done: Load, first: int, jobs: int) -> None:
    check(done.got, [job_id(each) for each in range(first, first + jobs)])
