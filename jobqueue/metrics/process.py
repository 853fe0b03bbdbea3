"""The metrics of one process: the meter of its engine, its commands and their outcomes, and the use of each token.

Everything is counted in series (series.py), which `pour` empties into a registry of prometheus_client. Figures that are
in Redis are not counted here: a scrape reads them (scrape.py). `Punctuality` shows whether the timers of this process
keep up: if they do not, heavy work in the background must yield.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf, nan
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import prometheus_client
from prometheus_client import CollectorRegistry, Gauge, PlatformCollector, ProcessCollector

from buckets import Meter
from jobqueue.metrics.series import Count, Labels, Spread
from jobqueue.metrics.shared import agreed_topics

OTHER = "other"
_MOST = 100  # the most tokens with figures of their own
_NEWEST: Literal["livemostrecent"] = "livemostrecent"  # all processes know the same tokens


class Used(Protocol):
    """The use of a token in this process."""

    name: str
    counts: dict[str, int]
    """Commands by verdict; set to 0 when they are counted here."""
    requests: int
    """Requests that were let in."""
    told: int
    """How many of `requests` have been counted here."""


class Live(Protocol):
    """A live token."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def expires(self) -> float | None:
        """When the token expires, in unix seconds, or None for never."""


class TokenFigures:
    """The figures of tokens in one process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.commands = Count(
            registry,
            "jobqueue_token_commands_total",
            "Commands by the name of their token (the first 100 names; then `other`) and the verdict on them.",
            ["token", "verdict"],
        )
        self.leases = Count(registry, "jobqueue_rate_leases_total", "Leases of permits for tokens with a rate.")
        self._number = Gauge("jobqueue_tokens", "Live tokens.", registry=registry, multiprocess_mode=_NEWEST)
        self._expires = Gauge(
            "jobqueue_token_expires_timestamp_seconds",
            "When a token expires, in unix seconds; +Inf: never, or it is gone.",
            ["token"],
            registry=registry,
            multiprocess_mode=_NEWEST,
        )
        self._names: set[str] = set()
        self.used: Callable[[], Iterable[Used]] = tuple
        """The tokens that were used in this process."""
        self.live: Callable[[], Iterable[Live]] = tuple
        """All live tokens."""

    def pour(self, judged: Callable[[str, int], None]) -> None:
        """Update the registry. `judged` counts requests and commands by verdict."""
        for grant in self.used():
            judged("ok", grant.requests - grant.told)
            grant.told = grant.requests
            for verdict, number in grant.counts.items():
                if number:
                    self.commands.add(self._label(grant.name), verdict, n=number)
                    if verdict != "ok":
                        judged(verdict, number)
                    grant.counts[verdict] = 0
        self.commands.pour()
        self.leases.pour()
        self._show_live()

    def _show_live(self) -> None:
        live = {token.name: token.expires for token in self.live()}
        self._number.set(len(live))
        for name in live:
            self._label(name)
        for name in self._names:
            expires = live.get(name)
            self._expires.labels(name).set(inf if expires is None else expires)

    def _label(self, name: str) -> str:
        if name not in self._names and len(self._names) < _MOST:
            self._names.add(name)
        return name if name in self._names else OTHER


Key = TypeVar("Key")

UNREADABLE = "unreadable"
VERDICTS = ("ok", "missing", "unknown", "expired", "forbidden", "too_fast", "browser")
"""The verdicts on who may make a request."""
LATENESS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30, 60)
_DURATION_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_WRITES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)

prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # the start time of each series would double the lines


class Counted(NamedTuple):
    """The counts of one process over some time, by labels. Topics are labels as in `Metrics.topic`."""

    added: Mapping[str, int]
    """By topic."""
    redelivered: Mapping[str, int]
    """By topic."""
    finished: Mapping[str, int]
    """By topic."""
    died: Mapping[tuple[str, str], int]
    """By topic and cause."""
    ready: Mapping[Labels, Sequence[int]]
    """By topic: the number of jobs in each bucket of the time from due to ready."""
    delivered: Mapping[Labels, Sequence[int]]
    """By topic: the number of jobs in each bucket of the time from due to the first delivery."""
    commands: Mapping[Labels, int]
    """By protocol, command and code."""


class Metrics(Meter):
    """The metrics of one process. `folder`: where it shares them with other processes, or None if it does not."""

    def __init__(self, most_topics: int = 100, folder: Path | None = None) -> None:
        self.registry = CollectorRegistry()
        self.ears: list[Meter] = []
        """Other meters that also receive `promoted` and `delivered`."""
        self._folder = folder
        self._most_topics = most_topics
        self._topics: set[str] = set()
        self._held = 0
        # Only for the history: counts by topic, and deaths by topic and cause.
        self._added: dict[str, int] = defaultdict(int)
        self._redelivered: dict[str, int] = defaultdict(int)
        self._finished: dict[str, int] = defaultdict(int)
        self._died: dict[tuple[str, str], int] = defaultdict(int)
        self._make_service()
        self._make_engine()
        self._make_redis()
        if folder is None:  # these metrics describe a single process
            ProcessCollector(registry=self.registry)
            PlatformCollector(registry=self.registry)

    def _make_service(self) -> None:
        self._commands = Count(
            self.registry,
            "jobqueue_commands_total",
            "Commands answered, by code (OK: done). Unreadable ones count as the command `unreadable`.",
            ["protocol", "command", "code"],
        )
        self._command_seconds = Spread(
            self.registry,
            "jobqueue_command_duration_seconds",
            "Time from reading a command to its answer. A pop that may wait is `pop_waiting`. Commands of an array "
            "that are carried out together count with their common time.",
            _DURATION_S,
            ["protocol", "command"],
        )
        self._secured = Count(
            self.registry,
            "jobqueue_durable_total",
            "Changes that asked for more than local durability, by what was asked for and what was reached.",
            ["asked", "reached"],
        )
        for asked in ("replicated", "fsynced"):  # so that the first burst shows as an increase
            self._secured.add(asked, "local", n=0)
        self._parked = self._gauge("jobqueue_parked_pops", "Pops waiting for a job.")
        self._access = Count(
            self.registry, "jobqueue_access_total", "Requests, by the verdict on who may make them.", ["verdict"]
        )
        for verdict in VERDICTS:
            self._access.add(verdict, n=0)
        self.tokens = TokenFigures(self.registry)
        """The figures of tokens."""
        self._handshakes = Count(
            self.registry, "jobqueue_tls_handshakes_total", "Handshakes of TLS, by how they ended.", ["outcome"]
        )
        self._tls_expires = self._newest(
            "jobqueue_tls_expires_timestamp_seconds", "When the certificate of the service ends; NaN without TLS."
        )
        self._tls_expires.set(nan)

    def _make_engine(self) -> None:
        registry = self.registry
        self._ready = Spread(
            registry,
            "jobqueue_due_to_ready_seconds",
            "How late timers of this process made jobs ready after a delay or the end of a lease, by Redis's clock.",
            LATENESS_S,
            ["topic"],
        )
        self._delivered = Spread(
            registry,
            "jobqueue_due_to_delivered_seconds",
            "Time from a job's due time to its first delivery, by Redis's clock, including its time in the ready list.",
            LATENESS_S,
            ["topic"],
        )
        self._occurrences = Count(
            registry,
            "jobqueue_occurrences_total",
            "Times of schedules that came, by what became of them: made, skipped, blocked; waiting counts each try.",
            ["topic", "outcome"],
        )
        self._limited = Count(
            registry,
            "jobqueue_limited_pops_total",
            "Looks of pops that left ready jobs of a topic because it had reached its rate or its concurrency.",
            ["topic", "limit"],
        )
        self._pages = Count(registry, "jobqueue_timer_pages_total", "Looks of timers into their buckets.")
        self._moves = Count(registry, "jobqueue_timer_moves_total", "Entries that timers processed.")
        self._lock_changes = Count(
            registry, "jobqueue_lock_changes_total", "Timer locks that this process took and lost.", ["change"]
        )
        for change in ("taken", "lost"):
            self._lock_changes.add(change, n=0)  # so that both exist from the start
        self._locks = self._gauge("jobqueue_locks_held", "Timer locks that this process holds.")
        self._instances = self._newest("jobqueue_instances", "Live instances: the processes that share the timers.")
        self._timers = self._newest("jobqueue_timers", "Timers that the instances share: one a bucket.")
        self._make_clock()

    def _make_clock(self) -> None:
        self._jumps = Count(
            self.registry,
            "jobqueue_clock_jumps_total",
            "Jumps of Redis's clock by more than `clock_limit_s`, ahead or back.",
            ["direction"],
        )
        for direction in ("ahead", "back"):
            self._jumps.add(direction, n=0)
        self._ahead = self._newest(
            "jobqueue_clock_offset_seconds", "Redis's clock minus this host's: above 0 when Redis is ahead."
        )

    def _make_redis(self) -> None:
        registry = self.registry
        self._calls = Count(registry, "jobqueue_redis_calls_total", "Calls to Redis, by script or command.", ["script"])
        self._errors = Count(
            registry,
            "jobqueue_redis_errors_total",
            "Calls to Redis that failed, by code; refusals are not failures.",
            ["code"],
        )
        self._errors.add("NO_ROOM", n=0)  # so that the first error shows as an increase
        self._call_seconds = Spread(
            registry,
            "jobqueue_redis_call_duration_seconds",
            "Time of a call to Redis, including its wait for a connection and its retries.",
            _DURATION_S,
        )
        self._barrier_seconds = Spread(
            registry,
            "jobqueue_fence_duration_seconds",
            "Time to learn whether changes reached the replicas or the disk: one wait for all that came together.",
            _DURATION_S,
        )
        self._writes = Spread(
            registry, "jobqueue_redis_commands_per_write", "Commands sent to Redis in one write.", _WRITES
        )

    def _gauge(self, name: str, help: str) -> Gauge:
        return Gauge(name, help, registry=self.registry, multiprocess_mode="livesum")

    def _newest(self, name: str, help: str) -> Gauge:
        """A gauge on which all processes agree."""
        return Gauge(name, help, registry=self.registry, multiprocess_mode="livemostrecent")

    def topic(self, name: str) -> str:
        """The label of a topic: its name for the first `most_topics` topics, `other` for the rest."""
        if name in self._topics:
            return name
        if len(self._topics) >= self._most_topics:
            return OTHER
        self._topics |= self._with(name)
        return name if name in self._topics else OTHER

    def has_own(self, topic: str) -> bool:
        """True if a topic is counted under its own name, or would be."""
        return topic in self._topics or len(self._topics) < self._most_topics

    def _with(self, topic: str) -> set[str]:
        """Topics that have figures of their own, including `topic` if there is room for one more."""
        if self._folder:
            with contextlib.suppress(OSError):  # the folder was removed; then each process decides for itself
                return agreed_topics(self._folder, topic, self._most_topics)
        return {topic}

    def answered(
        self,
        command: str,
        answers: Sequence[Mapping[str, Any]],
        seconds: float | None = None,
        *,
        protocol: str,
        waiting: bool = False,
    ) -> bool:
        """Count commands of one kind that were answered together. Returns True if all succeeded. `seconds`: how long
        they took, or None if they never began."""
        number = done = len(answers)
        for answer in answers:
            if "code" in answer:
                self._commands.add(protocol, command, answer["code"])
                done -= 1
        if done:
            self._commands.add(protocol, command, "OK", n=done)
        if seconds is not None:
            self._command_seconds.add(seconds, protocol, f"{command}_waiting" if waiting else command, n=number)
        return done == number

    def done(self, command: str, number: int, seconds: float, *, protocol: str, waiting: bool = False) -> None:
        """Like `answered`, for commands that all succeeded."""
        self._commands.add(protocol, command, "OK", n=number)
        self._command_seconds.add(seconds, protocol, f"{command}_waiting" if waiting else command, n=number)

    def judged(self, verdict: str, requests: int = 1) -> None:
        """Count the verdict on requests: one of VERDICTS."""
        self._access.add(verdict, n=requests)

    def shook_hands(self, outcome: str) -> None:
        """Count a TLS handshake: ok, certificate (the client's certificate was missing or refused), or failed."""
        self._handshakes.add(outcome)

    def tls_expires(self, at: float) -> None:
        """Set the Unix time at which the certificate of the service expires."""
        self._tls_expires.set(at)

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
        for ear in self.ears:
            ear.promoted(topic, late_us, jobs)

    def delivered(self, topic: str, late_us: Sequence[int]) -> None:
        if len(late_us) == 1:
            self._delivered.add(late_us[0] / 1e6, self.topic(topic))
        else:
            self._delivered.add_all([late / 1e6 for late in late_us], self.topic(topic))
        for ear in self.ears:
            ear.delivered(topic, late_us)

    def redelivered(self, topic: str, jobs: int) -> None:
        self._redelivered[self.topic(topic)] += jobs

    def added(self, topic: str, jobs: int) -> None:
        self._added[topic if topic in self._topics else self.topic(topic)] += jobs

    def finished(self, topic: str, jobs: int) -> None:
        self._finished[topic if topic in self._topics else self.topic(topic)] += jobs

    def died(self, topic: str, cause: str) -> None:
        self._died[self.topic(topic), cause] += 1

    def occurred(self, topic: str, outcome: str) -> None:
        self._occurrences.add(self.topic(topic), outcome)

    def limited(self, topic: str, limit: str) -> None:
        self._limited.add(self.topic(topic), limit)

    def locked(self, taken: bool) -> None:
        self._held += 1 if taken else -1
        self._lock_changes.add("taken" if taken else "lost")

    def signed(self, instances: int, timers: int) -> None:
        self._instances.set(instances)
        self._timers.set(timers)

    def compared(self, ahead_s: float) -> None:
        self._ahead.set(ahead_s)

    def jumped(self, ahead_s: float) -> None:
        self._jumps.add("ahead" if ahead_s > 0 else "back")

    def pour(self, parked: int) -> None:
        """Update the registry. `parked`: how many pops are waiting."""
        self._parked.set(parked)
        self._locks.set(self._held)
        self.tokens.pour(self.judged)
        for series in vars(self).values():
            if isinstance(series, Count | Spread):
                series.pour()

    def take(self) -> Counted:
        """The counts since the last call."""
        return Counted(
            added=_taken(self._added),
            redelivered=_taken(self._redelivered),
            finished=_taken(self._finished),
            died=_taken(self._died),
            ready=self._ready.take(),
            delivered=self._delivered.take(),
            commands=self._commands.take(),
        )


def _taken(numbers: dict[Key, int]) -> dict[Key, int]:
    """Return the numbers, and reset them."""
    taken = dict(numbers)
    numbers.clear()
    return taken


_LATE_US = 25_000


class Punctuality(Meter):
    """Counts the jobs that timers made ready, and how many of these were late."""

    def __init__(self) -> None:
        self._jobs = self._late = 0

    def promoted(self, topic: str, late_us: int, jobs: int) -> None:
        self._jobs += jobs
        if late_us > _LATE_US:
            self._late += jobs

    def is_late(self) -> bool:
        """True if more than one in a hundred jobs since the last call was over 25 ms late."""
        jobs, late = self._jobs, self._late
        self._jobs = self._late = 0
        return late * 100 > jobs
