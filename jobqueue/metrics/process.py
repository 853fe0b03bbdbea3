"""The metrics of a process: the meter of its machine, and what its commands were and how they ended.

All is counted in series (series.py), which `pour` empties into a registry of prometheus_client. The figures
that stand in Redis are not here: a scrape reads them (scrape.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import prometheus_client
from prometheus_client import CollectorRegistry, Gauge, PlatformCollector, ProcessCollector

from buckets import Meter
from jobqueue.metrics.series import Count, Spread
from jobqueue.metrics.shared import agreed_topics

UNREADABLE = "unreadable"
OTHER = "other"
LATENESS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30, 60)
_DURATION_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_WRITES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)

prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # when each series began: twice the lines


class Metrics(Meter):
    """What one process has done. `folder`: where its figures are added to those of others."""

    def __init__(self, most_topics: int = 100, folder: Path | None = None) -> None:
        self.registry = CollectorRegistry()
        self._folder = folder
        self._most_topics = most_topics
        self._topics: set[str] = set()
        self._held = 0
        self._make_service()
        self._make_machine()
        self._make_redis()
        if folder is None:  # they are of one process
            ProcessCollector(registry=self.registry)
            PlatformCollector(registry=self.registry)

    def _make_service(self) -> None:
        self._commands = Count(
            self.registry,
            "jobqueue_commands_total",
            "Commands answered, by their code (OK: carried out). What could not be read is the command `unreadable`.",
            ["command", "code"],
        )
        self._command_seconds = Spread(
            self.registry,
            "jobqueue_command_duration_seconds",
            "Time from a command read to its answer. A pop that may wait is `pop_waiting`. Commands of an array that "
            "are carried out together share one time: each counts with that of all.",
            _DURATION_S,
            ["command"],
        )
        self._secured = Count(
            self.registry,
            "jobqueue_durable_total",
            "Changes that were to be more than local, by what was asked for and what was reached.",
            ["asked", "reached"],
        )
        self._parked = self._gauge("jobqueue_parked_pops", "Pops that wait for a job.")

    def _make_machine(self) -> None:
        registry = self.registry
        self._ready = Spread(
            registry,
            "jobqueue_due_to_ready_seconds",
            "How late this process's timers made jobs ready, by Redis's clock: after a delay or the end of a lease.",
            LATENESS_S,
            ["topic"],
        )
        self._delivered = Spread(
            registry,
            "jobqueue_due_to_delivered_seconds",
            "From a job's due time to its first delivery, by Redis's clock: the time in the ready list is in it.",
            LATENESS_S,
            ["topic"],
        )
        self._pages = Count(registry, "jobqueue_timer_pages_total", "Looks of timers into their buckets.")
        self._moves = Count(registry, "jobqueue_timer_moves_total", "Entries that timers dealt with.")
        self._lock_changes = Count(
            registry, "jobqueue_lock_changes_total", "Timers' locks that this process took, and lost.", ["change"]
        )
        for change in ("taken", "lost"):
            self._lock_changes.add(change, n=0)  # so that both are there from the beginning
        self._locks = self._gauge("jobqueue_locks_held", "Timers' locks that this process holds.")
        self._instances = self._newest("jobqueue_instances", "Living instances: the processes that share the timers.")
        self._make_clock()

    def _make_clock(self) -> None:
        self._jumps = Count(
            self.registry,
            "jobqueue_clock_jumps_total",
            "Jumps of Redis's clock by more than `clock_limit_s`, ahead and back.",
            ["direction"],
        )
        for direction in ("ahead", "back"):
            self._jumps.add(direction, n=0)
        self._ahead = self._newest(
            "jobqueue_clock_offset_seconds", "Redis's clock less this host's: above 0 when Redis's is ahead."
        )

    def _make_redis(self) -> None:
        registry = self.registry
        self._calls = Count(registry, "jobqueue_redis_calls_total", "Calls of Redis, by script or command.", ["script"])
        self._errors = Count(
            registry, "jobqueue_redis_errors_total", "Calls of Redis that failed, by code; no refusals.", ["code"]
        )
        self._call_seconds = Spread(
            registry,
            "jobqueue_redis_call_duration_seconds",
            "Time of a call of Redis, with its wait for a connection and its repetitions.",
            _DURATION_S,
        )
        self._barrier_seconds = Spread(
            registry,
            "jobqueue_fence_duration_seconds",
            "Time to learn whether changes are with the replicas or on the disk: one wait for all that came together.",
            _DURATION_S,
        )
        self._writes = Spread(
            registry, "jobqueue_redis_commands_per_write", "Commands that left for Redis in one write.", _WRITES
        )

    def _gauge(self, name: str, says: str) -> Gauge:
        return Gauge(name, says, registry=self.registry, multiprocess_mode="livesum")

    def _newest(self, name: str, says: str) -> Gauge:
        """One of which all processes say the same."""
        return Gauge(name, says, registry=self.registry, multiprocess_mode="livemostrecent")

    def topic(self, name: str) -> str:
        """The label of a topic: its name for the first `most_topics` that come, `other` for all that follow."""
        if name in self._topics:
            return name
        if len(self._topics) >= self._most_topics:
            return OTHER
        self._topics |= self._with(name)
        return name if name in self._topics else OTHER

    def _with(self, topic: str) -> set[str]:
        """The topics that have figures of their own once one more has come."""
        if self._folder:
            with contextlib.suppress(OSError):  # the folder was taken away; then each process chooses for itself
                return agreed_topics(self._folder, topic, self._most_topics)
        return {topic}

    def answered(
        self, command: str, answers: Sequence[Mapping[str, Any]], seconds: float | None = None, *, waiting: bool = False
    ) -> None:
        """Commands of one kind were answered together; `seconds`: how long that took, if anything was done."""
        number = done = len(answers)
        for answer in answers:
            if "code" in answer:
                self._commands.add(command, answer["code"])
                done -= 1
        if done:
            self._commands.add(command, "OK", n=done)
        if seconds is not None:
            self._command_seconds.add(seconds, f"{command}_waiting" if waiting else command, n=number)

    def called(self, name: str, seconds: float, error: str | None) -> None:
        self._calls.add(name)
        self._call_seconds.add(seconds)
        if error:
            self._errors.add(error)

    def wrote(self, commands: int) -> None:
        self._writes.add(commands)

    def barrier_passed(self, seconds: float) -> None:
        self._barrier_seconds.add(seconds)

    def secured(self, asked: str, reached: str, changes: int) -> None:
        self._secured.add(asked, reached, n=changes)

    def paged(self, entries: int) -> None:
        self._pages.add()
        self._moves.add(n=entries)

    def promoted(self, topic: str, late_us: int, jobs: int) -> None:
        self._ready.add(late_us / 1e6, self.topic(topic), n=jobs)

    def delivered(self, topic: str, late_us: Sequence[int]) -> None:
        self._delivered.add_all([late / 1e6 for late in late_us], self.topic(topic))

    def locked(self, taken: bool) -> None:
        self._held += 1 if taken else -1
        self._lock_changes.add("taken" if taken else "lost")

    def signed(self, instances: int) -> None:
        self._instances.set(instances)

    def compared(self, ahead_s: float) -> None:
        self._ahead.set(ahead_s)

    def jumped(self, ahead_s: float) -> None:
        self._jumps.add("ahead" if ahead_s > 0 else "back")

    def pour(self, parked: int) -> None:
        """Bring the registry up to date. `parked`: how many pops wait."""
        self._parked.set(parked)
        self._locks.set(self._held)
        for series in vars(self).values():
            if isinstance(series, Count | Spread):
                series.pour()
