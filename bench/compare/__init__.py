"""`make bench`: our service and its alternatives, all doing the same work in turns.

This is the contract of a system; `systems/` has one module per system. A system runs in its own folder with its own
store. Its driver starts it, gives it work, and reports what the work took. All jobs have ids of 20 characters and
bodies of 100 bytes, as far as a system allows (`DESCRIPTION` states exceptions). Works that leave jobs behind do not
clean up: the caller does, with `clear`.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

BODY = "x" * 98  # 100 bytes as JSON, including its quotes
FAR_S = 86_400  # when pending jobs fall due that nobody should get
BATCHERS = 8  # connections for batches
CONSUMERS = 16  # consumers that wait for due jobs
LEAD_S = 2.0  # jobs of lateness and burst are due from this long afterwards, so that all are added by then
NOT_MEASURED = "not measured"  # why a system that may well be able to do a work has no figure
PARKING_S = 0.2  # consumers of a burst start to wait this long before


class CannotError(Exception):
    """A system cannot do this; the message goes into the table."""


class MissingError(Exception):
    """A system is not available on this machine; the message goes into the table."""


class WrongError(Exception):
    """A job was lost, doubled or early: the figure would be false."""


class TooSlowError(WrongError):
    """Some jobs were added after they were due, because the machine was busy. All were received nevertheless, so the
    work can be repeated.
    """


@dataclass(frozen=True)
class Cpu:
    """CPU microseconds since the start, of the store and of what stands between the store and the user.

    That is the service, or, for a library, the processes in which it runs: producers and workers.
    """

    store_us: float
    service_us: float


@dataclass(frozen=True)
class Run:
    """What a work took, without its preparation. CPU microseconds are for all its jobs together."""

    jobs: int
    seconds: float
    cpu: Cpu
    load_us: float | None = None  # of the load generator, where it is a process of its own

    @property
    def rate(self) -> float:
        """Jobs per second."""
        return self.jobs / self.seconds


@dataclass(frozen=True)
class Late:
    """Milliseconds from each job's due time until a consumer had it."""

    ms: list[float]


@dataclass(frozen=True)
class Parked:
    """Waiting consumers: the bytes of the service (or server) and the connections to the store that they cost together,
    and the milliseconds until one of them had a job that was added for it.
    """

    number: int
    memory: int
    connections: int
    wake_ms: list[float] = field(default_factory=list)


class System(ABC):
    """A system under comparison. Methods block; one that it cannot do raises CannotError."""

    NAME: str  # name in tables and on the command line
    DESCRIPTION: str  # how it is used here: its settings, and its own way of doing each work
    PEER: ClassVar[bool] = True  # whether our ratios refer to it
    VARIANT: ClassVar[bool] = False  # whether it is our service in another version or setting: it has tables of its own
    SCALE: ClassVar[float] = 1.0  # factor on the numbers of jobs, so that slow systems finish in time too
    MOST_PENDING: ClassVar[int] = 1_000_000  # the most jobs that it can be filled with in the available time

    @abstractmethod
    def start(self, folder: Path) -> None:
        """Start it in an empty folder and wait until it is ready. Raises MissingError if it is not available."""

    @abstractmethod
    def stop(self) -> None:
        """End all processes, also after a failed start."""

    @abstractmethod
    def version(self) -> str:
        """The version of the system, for the report. May be called before `start`."""

    @abstractmethod
    def clear(self) -> None:
        """Return to the state after the start, without any job."""

    @abstractmethod
    def cpu(self) -> Cpu:
        """CPU used so far; figures are differences."""

    @abstractmethod
    def memory(self) -> int:
        """Bytes in use by the store."""

    @abstractmethod
    def add_one(self, seconds: float, connections: int) -> Run:
        """Add delayed jobs, due in FAR_S, one per request, for about this long; each connection waits for its
        answers."""

    @abstractmethod
    def add_batch(self, seconds: float, size: int) -> Run:
        """The same in batches."""

    def add_spread(self, seconds: float, size: int) -> Run:
        """Like `add_batch`, with a different due time for each job of a batch."""
        raise CannotError(NOT_MEASURED)

    @abstractmethod
    def fill(self, jobs: int) -> None:
        """Add this many more jobs, due in FAR_S, in the fastest way."""

    @abstractmethod
    def pop_finish_one(self, jobs: int, connections: int) -> Run:
        """Pop and finish this many ready jobs one by one; finished jobs are not remembered."""

    @abstractmethod
    def pop_finish_batch(self, jobs: int, size: int) -> Run:
        """The same in batches."""

    def pop_finish_kept(self, jobs: int, size: int) -> Run:
        """Like `pop_finish_batch`, but each job leaves a tombstone for a while."""
        raise CannotError("keeps no tombstones")

    def finish_and_next(self, jobs: int, connections: int) -> Run:
        """Like `pop_finish_one`, but finishing a job and asking for the next one share a request."""
        raise CannotError("no such request")

    @abstractmethod
    def cycle(self, jobs: int, size: int) -> Run:
        """Whole lives, all at once: added in batches with a delay of 1 ms, due, popped in batches and finished."""

    @abstractmethod
    def lateness(self, rate: int, seconds: float) -> Late:
        """Jobs added beforehand, due at even intervals from LEAD_S on; 16 waiting consumers take one at a time. Raises
        WrongError unless each job arrives exactly once.
        """

    @abstractmethod
    def burst(self, jobs: int) -> Run:
        """Jobs due in one millisecond; the seconds from then until a consumer has the last one."""

    def parked(self, number: int) -> Parked:
        """Let this many consumers wait for a job."""
        raise CannotError("a consumer that waits is a process of its own")

    def crowd(self, jobs: int) -> dict[str, float]:
        """Jobs due at even intervals within one second: `seconds` from the last one's due time until all are ready, and
        the `p50` and `p99` of another topic meanwhile: milliseconds of an add, a pop and a finish, one after another.
        """
        raise CannotError(NOT_MEASURED)

    def idle(self, seconds: float) -> dict[str, float]:
        """`commands`: those that the store runs each second, also in scripts, for two idle processes of the service and
        1,000 topics with a pending job each."""
        raise CannotError(NOT_MEASURED)

    def timed(self, work: Callable[[], int]) -> Run:
        """Run a function that returns a number of jobs."""
        before, begun = self.cpu(), time.perf_counter()
        jobs = work()
        seconds, after = time.perf_counter() - begun, self.cpu()
        return Run(jobs, seconds, Cpu(after.store_us - before.store_us, after.service_us - before.service_us))


def in_ms(seconds: float) -> int:
    """A time from now, in milliseconds since the epoch, rounded up."""
    return int((time.time() + seconds) * 1000) + 1


def job_id(number: int) -> str:
    """An id of 20 characters."""
    return f"job:{number:016d}"


class Deadline:
    """When the first of the jobs added now falls due: after LEAD_S, plus the time that adding all of them may take."""

    def __init__(self, jobs: int, adds_a_second: int) -> None:
        self.ms = in_ms(LEAD_S + jobs / adds_a_second)
        self._met = True

    def added(self) -> None:
        """Call this once all jobs are added."""
        self._met = time.time() * 1000 < self.ms

    def check(self) -> None:
        """Raises TooSlowError if it was missed. Call this once all jobs have been received."""
        if not self._met:
            raise TooSlowError("the first job was due before all were added")


def check(got: list[str], wanted: list[str]) -> None:
    """Raises WrongError unless each wanted id was received exactly once."""
    if len(got) != len(set(got)) or set(got) != set(wanted):
        lost, strange = len(set(wanted) - set(got)), len(set(got) - set(wanted))
        raise WrongError(f"{lost} lost, {len(got) - len(set(got))} doubled, {strange} strange")


def check_times(ms: list[float]) -> list[float]:
    """Raises WrongError if one was early."""
    if ms and min(ms) < 0:
        raise WrongError(f"{sum(1 for each in ms if each < 0)} early, by up to {-min(ms):.3f} ms")
    return ms
