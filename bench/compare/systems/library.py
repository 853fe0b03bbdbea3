"""What the drivers of libraries share: producers and a worker are programs that are asked to do each work.

A worker calls a handler that records the number of the job and the time. Libraries have no pop that returns several
jobs, so batches of finished jobs are measured with the worker at its best concurrency.
"""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from bench.compare import CONSUMERS, FAR_S, Cpu, Deadline, Late, Run, System, WrongError, check, in_ms, job_id
from bench.compare.processes import cpu_us
from bench.compare.systems.program import Program
from bench.compare.systems.store import Store

_FILL_SIZE = 1000  # jobs per batch when only speed counts
_KEPT_S = 3600  # lifetime of a tombstone
_MANY = 500  # jobs whose adding shows how fast it is
_MARGIN = 1.5  # allowance for a slower next time
_SLOWEST = 8  # factor against a quiet machine; beyond it, do not wait
_SHARE = 1 << 32  # ids reserved for one producer of a timed add


@dataclass(frozen=True)
class Handled:
    """When the last job was finished; and the number of each job with the time its handler began. In ms since the
    epoch."""

    end: float
    numbers: list[int]
    at: list[float]


class Worker(Protocol):
    """Handles a number of jobs once."""

    def prepare(self, jobs: int, concurrency: int, delayed: bool, kept_s: int) -> None:
        """Connect, but take no ready jobs yet. `delayed`: the jobs fall due while it runs. `kept_s`: how long finished
        jobs are remembered.
        """

    def run(self) -> None:
        """Start handling jobs."""

    def result(self) -> Handled:
        """Wait until all jobs are handled."""

    def close(self) -> None:
        """Stop taking jobs."""

    def pids(self) -> list[int]:
        """The ids of its processes."""


class AskedWorker:
    """A worker in a program that is asked too."""

    def __init__(self, launch: Callable[[], Program]) -> None:
        self._launch = launch
        self._program = launch()
        self._running = False

    def prepare(self, jobs: int, concurrency: int, delayed: bool, kept_s: int) -> None:
        self._program.ask("prepare", jobs=jobs, concurrency=concurrency, kept_s=kept_s)

    def run(self) -> None:
        self._program.send("run")
        self._running = True

    def result(self) -> Handled:
        handled = Handled(**self._program.answer())
        self._running = False
        return handled

    def close(self) -> None:
        if self._running:  # something went wrong, and it is waiting for jobs that may never come
            self._program.stop()
            self._program, self._running = self._launch(), False
        else:
            self._program.ask("close")

    def pids(self) -> list[int]:
        return [self._program.pid]


class Library(System):
    """A queue that is a library over Redis."""

    CONCURRENCY: ClassVar[int]  # concurrency at which its worker is fastest
    PRODUCERS: ClassVar[int] = 1  # number of processes with which adding is fastest on two cores
    ADDS_A_SECOND: ClassVar[int]  # how long before they fall due jobs are added, on a quiet machine
    EARLIEST_MS: ClassVar[float] = 0.0  # how early it may be by design

    def start(self, folder: Path) -> None:
        self._programs: list[Program] = []
        self._store = Store(folder)
        self._next = 0
        self._adds_a_second = float(self.ADDS_A_SECOND)  # as last measured, on a possibly busy machine
        self._producers = [self.program(folder) for _ in range(self.PRODUCERS)]
        self._worker = self.worker(folder)
        self._put(self.PRODUCERS, None)  # connected, with its scripts loaded
        self.clear()

    def stop(self) -> None:
        for program in getattr(self, "_programs", []):
            program.stop()
        if hasattr(self, "_store"):
            self._store.stop()

    @abstractmethod
    def program(self, folder: Path) -> Program:
        """Start a new producer, with `launch`."""

    def worker(self, folder: Path) -> Worker:
        return AskedWorker(lambda: self.program(folder))

    def launch(self, command: list[str], folder: Path, **variables: str) -> Program:
        """Start a program that ends with the system."""
        program = Program(command, folder / f"{self.NAME}.log", **variables)
        self._programs.append(program)
        return program

    def clear(self) -> None:
        self._store.clear()

    def cpu(self) -> Cpu:
        pids = {program.pid for program in self._programs}.union(self._worker.pids())
        return Cpu(self._store.cpu_us(), cpu_us(*pids))

    def memory(self) -> int:
        return self._store.memory()

    def add_one(self, seconds: float, connections: int) -> Run:
        return self._add_for(seconds, connections, 1)

    def add_batch(self, seconds: float, size: int) -> Run:
        return self._add_for(seconds, 2, size)

    def fill(self, jobs: int) -> None:
        self._put(jobs, in_ms(FAR_S), 1)

    def pop_finish_one(self, jobs: int, connections: int) -> Run:
        return self._pop_finish(jobs, connections)

    def pop_finish_batch(self, jobs: int, size: int) -> Run:
        return self._pop_finish(jobs, self.CONCURRENCY)

    def pop_finish_kept(self, jobs: int, size: int) -> Run:
        return self._pop_finish(jobs, self.CONCURRENCY, _KEPT_S)

    def cycle(self, jobs: int, size: int) -> Run:
        first = self._next

        def adding() -> float:
            begun_ms = time.time() * 1000
            self._put(jobs, None, delay=1, size=size)
            return begun_ms

        run, handled = self._handle(jobs, self.CONCURRENCY, adding, delayed=True)
        _check(handled, first, jobs)
        return run

    def lateness(self, rate: int, seconds: float) -> Late:
        jobs, step_ms, first = round(rate * seconds), 1000 / rate, self._next
        deadlines: list[Deadline] = []

        def adding() -> float:
            deadlines.append(self._add_ahead(jobs, step_ms))
            return deadlines[0].ms

        _, handled = self._handle(jobs, CONSUMERS, adding, delayed=True)
        _check(handled, first, jobs)
        deadlines[0].check()
        dues = [math.ceil(deadlines[0].ms + (number - first) * step_ms) for number in handled.numbers]
        return Late(self._check_times([at - due for at, due in zip(handled.at, dues, strict=True)]))

    def burst(self, jobs: int) -> Run:
        first = self._next
        deadlines: list[Deadline] = []

        def adding() -> float:
            deadlines.append(self._add_ahead(jobs))
            time.sleep(max(0.0, deadlines[0].ms / 1000 - time.time()))
            return deadlines[0].ms

        run, handled = self._handle(jobs, self.CONCURRENCY, adding, delayed=True, begin_after=True)
        _check(handled, first, jobs)
        deadlines[0].check()
        self._check_times([at - deadlines[0].ms for at in handled.at])
        return Run(jobs, (max(handled.at) - deadlines[0].ms) / 1000, run.cpu)

    def _add_ahead(self, jobs: int, step_ms: float = 0) -> Deadline:
        """Add jobs before the first one falls due."""
        rate = min(self.ADDS_A_SECOND, self._adds_a_second / _MARGIN)
        deadline = Deadline(jobs, round(max(rate, self.ADDS_A_SECOND / _SLOWEST)))
        self._put(jobs, deadline.ms, step_ms)
        deadline.added()
        return deadline

    def _pop_finish(self, jobs: int, concurrency: int, kept_s: int = 0) -> Run:
        first = self._put(jobs, None)
        run, handled = self._handle(jobs, concurrency, lambda: time.time() * 1000, kept_s=kept_s)
        _check(handled, first, jobs)
        return run

    def _handle(
        self,
        jobs: int,
        concurrency: int,
        begin: Callable[[], float],
        delayed: bool = False,
        begin_after: bool = False,
        kept_s: int = 0,
    ) -> tuple[Run, Handled]:
        """Let the worker handle jobs. Seconds count from what `begin` returns (ms) until the last job is finished.
        `begin_after`: the CPU of `begin` itself does not count.
        """
        worker = self._worker
        worker.prepare(jobs, concurrency, delayed, kept_s)
        try:
            before = self.cpu()
            worker.run()
            begun_ms = begin()
            if begin_after:
                before = self.cpu()
            handled = worker.result()
            cpu = self._since(before)
        finally:
            worker.close()
        return Run(jobs, (handled.end - begun_ms) / 1000, cpu), handled

    def _since(self, before: Cpu) -> Cpu:
        after = self.cpu()
        return Cpu(after.store_us - before.store_us, after.service_us - before.service_us)

    def _add_for(self, seconds: float, connections: int, size: int) -> Run:
        before, due = self.cpu(), in_ms(FAR_S)
        share = max(1, connections // len(self._producers))
        for producer in self._producers:
            producer.send("add", seconds=seconds, connections=share, size=size, first=self._next, due=due)
            self._next += _SHARE
        answers = [producer.answer() for producer in self._producers]
        jobs, took = sum(each["jobs"] for each in answers), max(each["seconds"] for each in answers)
        return Run(jobs, took, self._since(before))

    def _put(
        self, jobs: int, due: float | None, step: float = 0, delay: float | None = None, size: int = _FILL_SIZE
    ) -> int:
        """Add jobs in the fastest way, divided among the producers. Returns the number of the first one."""
        begun, origin, left = time.perf_counter(), self._next, jobs
        when = {"origin": origin, "due": due, "step": step, "delay": delay}
        for number, producer in enumerate(self._producers):
            part = left // (len(self._producers) - number)
            producer.send("fill", jobs=part, first=self._next, size=size, **when)
            self._next += part
            left -= part
        for producer in self._producers:
            producer.answer()
        if jobs >= _MANY:
            self._adds_a_second = jobs / (time.perf_counter() - begun)
        return origin

    def _check_times(self, ms: list[float]) -> list[float]:
        if min(ms) < self.EARLIEST_MS:
            raise WrongError(f"{sum(1 for each in ms if each < 0)} early, by up to {-min(ms):.3f} ms")
        return ms


def _check(handled: Handled, first: int, jobs: int) -> None:
    check([job_id(each) for each in handled.numbers], [job_id(each) for each in range(first, first + jobs)])
