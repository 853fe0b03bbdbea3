"""The works: what each system has to do, and the figures that result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from bench.compare import NOT_MEASURED, CannotError, Late, Parked, Run, System
from bench.figures import percentile

BATCH = 100
Figures = dict[str, float]
Outcome = Run | Late | Parked | Figures


@dataclass(frozen=True)
class Sizes:
    """The size of each work; numbers of jobs are multiplied by the SCALE of a system."""

    rounds: int
    seconds: float  # seconds of adds
    one: int  # jobs popped one at a time
    many: int  # jobs popped in batches, and whole lives
    late_s: float  # seconds of lateness
    burst: int
    kept: int  # pending jobs whose memory is measured
    parked: int
    crowd: int  # jobs due within a second; 0: none
    idle_s: float
    pending: tuple[int, ...]  # steps of growth
    growth_rounds: int
    works_s: float = 86_400  # no more rounds of works that would end later than this
    limit_s: float = 86_400  # no more steps of growth after this


_STEPS = (1_000, 10_000, 100_000, 1_000_000)
FULL = Sizes(3, 1.5, 24_000, 40_000, 3, 100_000, 100_000, 5_000, 1_000_000, 5, _STEPS, 1, works_s=900, limit_s=1500)
QUICK = Sizes(3, 1, 3_000, 20_000, 2, 20_000, 20_000, 500, 0, 5, (1_000, 100_000), 1)
TINY = Sizes(1, 0.1, 100, 300, 0.2, 300, 1_000, 20, 1_000, 0.5, (500,), 1)
VERSIONS = Sizes(
    3, 1.5, 12_000, 80_000, 4, 100_000, 100_000, 5_000, 1_000_000, 5, (1_000_000,), 1
)  # of our own service


@dataclass(frozen=True)
class Work:
    """A work for each system in turn."""

    name: str
    group: str  # as named in --works
    title: str
    measure: Callable[[System, Sizes], Outcome]
    wanted: str = ""  # the target for our service
    once: bool = False  # after the rounds
    leaves: bool = False  # leaves jobs, or remains of jobs, that must be cleared
    most_only: bool = False  # in growth, only with the most pending jobs, to save time


def scaled(system: System, jobs: int) -> int:
    """Scale a number of jobs; more than one batch is rounded to whole batches."""
    number = max(1, round(jobs * system.SCALE))
    return number if number < BATCH else number // BATCH * BATCH


def figures(outcome: Outcome) -> Figures:
    """The figures of an outcome: jobs per second, microseconds per job, milliseconds, bytes."""
    if isinstance(outcome, Run):
        store_us, service_us = outcome.cpu.store_us / outcome.jobs, outcome.cpu.service_us / outcome.jobs
        load = {} if outcome.load_us is None else {"load_us": outcome.load_us / outcome.jobs}
        return {"rate": outcome.rate, "store_us": store_us, "service_us": service_us, **load}
    if isinstance(outcome, Late):
        return {"p50": percentile(outcome.ms, 50), "p99": percentile(outcome.ms, 99), "max": max(outcome.ms)}
    if isinstance(outcome, Parked):
        return {
            "bytes_each": outcome.memory / outcome.number,
            "store_connections": outcome.connections,
            "wake_p50": percentile(outcome.wake_ms, 50),
            "wake_max": max(outcome.wake_ms),
        }
    return outcome


def _bytes(system: System, sizes: Sizes) -> Figures:
    system.clear()  # memory that a process has freed but kept would hide that of the new jobs
    jobs, before = scaled(system, sizes.kept), system.memory()
    system.fill(jobs)
    return {"bytes": (system.memory() - before) / jobs}


def _burst(system: System, sizes: Sizes) -> Figures:
    jobs = scaled(system, sizes.burst)
    run = system.burst(jobs)
    return {"seconds": run.seconds, "jobs": jobs, **figures(run)}


def _late(rate: int, system: System, sizes: Sizes) -> Late:
    return system.lateness(rate, sizes.late_s)


def _add(connections: int, system: System, sizes: Sizes) -> Run:
    return system.add_one(sizes.seconds, connections)


def _pop(connections: int, system: System, sizes: Sizes) -> Run:
    return system.pop_finish_one(scaled(system, sizes.one), connections)


def _next(system: System, sizes: Sizes) -> Run:
    return system.finish_and_next(scaled(system, sizes.one), 64)


def _add_batch(system: System, sizes: Sizes) -> Run:
    return system.add_batch(sizes.seconds, BATCH)


def _add_spread(system: System, sizes: Sizes) -> Run:
    return system.add_spread(sizes.seconds, BATCH)


def _pop_batch(system: System, sizes: Sizes) -> Run:
    return system.pop_finish_batch(scaled(system, sizes.many), BATCH)


def _pop_kept(system: System, sizes: Sizes) -> Run:
    return system.pop_finish_kept(scaled(system, sizes.many), BATCH)


def _cycle(system: System, sizes: Sizes) -> Run:
    return system.cycle(scaled(system, sizes.many), BATCH)


def _crowd(system: System, sizes: Sizes) -> Figures:
    if not sizes.crowd:
        raise CannotError(NOT_MEASURED)
    return {"jobs": sizes.crowd, **system.crowd(sizes.crowd)}


def _idle(system: System, sizes: Sizes) -> Figures:
    return system.idle(sizes.idle_s)


def _park(system: System, sizes: Sizes) -> Parked:
    return system.parked(sizes.parked)


WORKS = [
    Work("add-8", "add", "add, one per request, 8 connections", partial(_add, 8), "20,000", leaves=True),
    Work("add-64", "add", "add, one per request, 64 connections", partial(_add, 64), "35,000", leaves=True),
    Work("batch", "batch", "add, batches of 100", _add_batch, "200,000", leaves=True),
    Work("spread", "batch", "the same, each with another due time", _add_spread, "100,000", leaves=True),
    Work("pop-8", "pop", "pop + finish, one at a time, 8 connections", partial(_pop, 8), "7,400"),
    Work("pop-64", "pop", "pop + finish, one at a time, 64 connections", partial(_pop, 64), "17,000"),
    Work("next-64", "pop", "the same, finish and next pop in one request", _next, "20,000"),
    Work("pop-batch", "popbatch", "pop + finish, batches of 100", _pop_batch, "90,000"),
    Work("pop-kept", "popbatch", "the same, each leaves a tombstone", _pop_kept, leaves=True),
    Work("cycle", "cycle", "whole cycle: add, due, pop, finish; batches of 100", _cycle),
    Work("late-200", "late", "200 jobs due per second", partial(_late, 200), "0.8 / 2"),
    Work("late-2000", "late", "2,000 jobs due per second", partial(_late, 2000), "0.75 / 4"),
    Work("burst", "burst", "jobs due in one millisecond", _burst, "1.2"),
    Work("crowd", "crowd", "jobs due within one second", _crowd, "8 / 40", once=True, leaves=True),
    Work("bytes", "bytes", "a pending job", _bytes, "400", once=True, leaves=True),
    Work("parked", "parked", "waiting consumers", _park, "3,000", once=True, leaves=True),
    Work("idle", "idle", "two idle processes", _idle, "45", once=True),
]

# Measured again with more and more pending jobs.
GROWING = [
    Work("add-64", "growth", "add, one per request, 64 connections", partial(_add, 64)),
    Work("batch", "growth", "add, batches of 100", _add_batch),
    Work("late-200", "growth", "lateness at 200 a second", partial(_late, 200), "0.8 / 2", most_only=True),
    Work("late-2000", "growth", "lateness at 2,000 a second", partial(_late, 2000), "0.75 / 4"),
]
