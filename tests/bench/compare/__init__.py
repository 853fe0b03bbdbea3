"""`make bench`: our service and what users would pick instead, each doing the same work in turn.

This is the contract of a system, one module a system beside it. A system runs in a folder of its own, with a store of
its own; its driver starts it, gives it work, and says what the work took. All jobs have ids of 20 characters and bodies
of 100 bytes, as far as a system can (`DESCRIPTION` says where not). The works that leave jobs behind do not clear up:
whoever calls them does, by `clear`.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

BODY = "x" * 98  # with its quotes, as JSON, 100 bytes
FAR_S = 86_400  # when pending jobs fall due that nobody is to get
BATCHERS = 8  # connections over which batches go
CONSUMERS = 16  # that wait for what falls due
LEAD_S = 2.0  # jobs of lateness and of a burst are due from so much later on, so that all are added by then
PARKING_S = 0.2  # consumers of a burst wait from so much sooner on


class CannotError(Exception):
    """What a system cannot do, in words for the table."""


class MissingError(Exception):
    """A system cannot be had on this machine, and why, in words for the table."""


class WrongError(Exception):
    """A job was lost, doubled or early: the figure would not be true."""


class TooSlowError(WrongError):
    """Some jobs were added after they were due, as the machine was busy with other things. All were got all the same,
    so that the work can be done again."""


@dataclass(frozen=True)
class Cpu:
    """CPU microseconds used since its start: by the store, and by what stands between the store and the user.

    For a service that is the service; for a library it is the processes in which it runs, producers and workers.
    """

    store_us: float
    service_us: float


@dataclass(frozen=True)
class Run:
    """What a work took, without its preparation. CPU microseconds of all its jobs together."""

    jobs: int
    seconds: float
    cpu: Cpu

    @property
    def rate(self) -> float:
        """Jobs a second."""
        return self.jobs / self.seconds


@dataclass(frozen=True)
class Late:
    """Milliseconds from each job's due time until a consumer had it."""

    ms: list[float]


@dataclass(frozen=True)
class Parked:
    """Consumers that wait: bytes of the service (or of the server) and connections at the store that they cost
    together, and the milliseconds until one of them had a job that was added for it."""

    number: int
    memory: int
    connections: int
    wake_ms: list[float] = field(default_factory=list)


class System(ABC):
    """One system. Methods block; a work that it cannot do raises Cannot."""

    NAME: ClassVar[str]  # as in tables and on the command line
    DESCRIPTION: ClassVar[str]  # how it is used here: settings, what is its own way of each work
    PEER: ClassVar[bool] = True  # whether our ratios are taken to it
    SCALE: ClassVar[float] = 1.0  # the numbers of jobs are multiplied by it, so that slow ones end in time too
    MOST_PENDING: ClassVar[int] = 1_000_000  # as many as it can be filled with in the time that there is

    @abstractmethod
    def start(self, folder: Path) -> None:
        """Start it in an empty folder and wait until it is ready. Missing: it is not to be had."""

    @abstractmethod
    def stop(self) -> None:
        """End all processes; also after a start that failed."""

    @abstractmethod
    def version(self) -> str:
        """Of the system, for the report. May be asked before `start`."""

    @abstractmethod
    def clear(self) -> None:
        """Be as after the start, without any job."""

    @abstractmethod
    def cpu(self) -> Cpu:
        """Used so far; figures are differences."""

    @abstractmethod
    def memory(self) -> int:
        """Bytes in use by the store."""

    @abstractmethod
    def add_one(self, seconds: float, connections: int) -> Run:
        """Add delayed jobs, due in FAR_S, one a request, for about so long; each connection waits for its answer."""

    @abstractmethod
    def add_batch(self, seconds: float, size: int) -> Run:
        """The same in batches."""

    def add_spread(self, seconds: float, size: int) -> Run:
        """As `add_batch`, each job of a batch due at another time."""
        raise CannotError("not measured apart")

    @abstractmethod
    def fill(self, jobs: int) -> None:
        """Add so many more jobs, due in FAR_S, in the fastest way."""

    @abstractmethod
    def pop_finish_one(self, jobs: int, connections: int) -> Run:
        """Take and finish so many ready jobs, each by itself; nothing is remembered of a finished one."""

    @abstractmethod
    def pop_finish_batch(self, jobs: int, size: int) -> Run:
        """The same in batches."""

    def pop_finish_kept(self, jobs: int, size: int) -> Run:
        """As `pop_finish_batch`, and a tombstone of each stays for a while."""
        raise CannotError("keeps no tombstones")

    def finish_and_next(self, jobs: int, connections: int) -> Run:
        """As `pop_finish_one`, but the end of a job and the request for the next one are one request."""
        raise CannotError("no such request")

    @abstractmethod
    def cycle(self, jobs: int, size: int) -> Run:
        """Whole lives: added in batches with a delay of 1 ms, due, popped in batches and finished, all at once."""

    @abstractmethod
    def lateness(self, rate: int, seconds: float) -> Late:
        """Jobs added beforehand, due at even distances from LEAD_S on; 16 consumers that wait take one at a time.
        Every job is got once, else Wrong."""

    @abstractmethod
    def burst(self, jobs: int) -> Run:
        """Jobs due in one millisecond; the seconds from there until a consumer has the last one."""

    def parked(self, number: int) -> Parked:
        """So many consumers wait for a job."""
        raise CannotError("a consumer that waits is a process of its own")

    def timed(self, work: Callable[[], int]) -> Run:
        """Run what returns a number of jobs."""
        before, begun = self.cpu(), time.perf_counter()
        jobs = work()
        seconds, after = time.perf_counter() - begun, self.cpu()
        return Run(jobs, seconds, Cpu(after.store_us - before.store_us, after.service_us - before.service_us))


def in_ms(seconds: float) -> int:
    """So much later, in milliseconds since the epoch; rounded up."""
    return int((time.time() + seconds) * 1000) + 1


def pages(ids: list[str], size: int) -> Iterator[list[str]]:
    """An iterator, that several may take from."""
    return iter([ids[start : start + size] for start in range(0, len(ids), size)])


def job_id(number: int) -> str:
    """20 characters."""
    return f"job:{number:016d}"


class Deadline:
    """When the first of some jobs that are added now falls due: LEAD_S later, and so long as adding all may take."""

    def __init__(self, jobs: int, adds_a_second: int) -> None:
        self.ms = in_ms(LEAD_S + jobs / adds_a_second)
        self._met = True

    def added(self) -> None:
        """All jobs are added."""
        self._met = time.time() * 1000 < self.ms

    def check(self) -> None:
        """TooSlowError when it was not met; asked when all jobs were got."""
        if not self._met:
            raise TooSlowError("the first job was due before all were added")


def check(got: list[str], wanted: list[str]) -> None:
    """WrongError unless each wanted id was got, once."""
    if len(got) != len(set(got)) or set(got) != set(wanted):
        lost, strange = len(set(wanted) - set(got)), len(set(got) - set(wanted))
        raise WrongError(f"{lost} lost, {len(got) - len(set(got))} doubled, {strange} strange")


def check_times(ms: list[float]) -> list[float]:
    """WrongError when one was early."""
    if ms and min(ms) < 0:
        raise WrongError(f"{sum(1 for each in ms if each < 0)} early, by up to {-min(ms):.3f} ms")
    return ms
