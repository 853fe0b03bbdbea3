"""A scrape: the answer of `GET /metrics`, with the metrics of the process and the figures of the namespace from Redis.

With PROMETHEUS_MULTIPROC_DIR set, processes on one machine keep their metrics in files in that folder, and each process
returns the sums over all of them.

The totals of topics are kept from falling: Prometheus would mistake a fall for a restart and count everything again.
The totals in Redis fall when a delivery is undone, when Redis is emptied, and when one of the topics that are added up
under `other` is forgotten. Processes that share a metrics folder share the totals that they last showed, as a scrape
may reach any of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import structlog
from msgspec import Struct
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from buckets import Pollers, Schedules, State, Stats, Topics, Waiting
from buckets.errors import JobQueueError
from buckets.events.switch import stream_bytes
from buckets.job import LIVE
from buckets.redis.info import Memory, facts_of, memory_in
from jobqueue import __version__
from jobqueue.metrics.process import OTHER, Metrics
from jobqueue.metrics.shared import forget, forget_killed, locked

__all__ = ["CONTENT_TYPE_LATEST", "Scrape"]

Numbers = Mapping[str, int]


class Rising(Struct):
    """The totals of one topic, kept from falling. `created` falls only if Redis was emptied."""

    gone: dict[str, int] = {}
    highest: dict[str, int] = {}

    def raise_to(self, totals: Numbers) -> None:
        """Update with the totals that are in Redis now."""
        if totals.get("created", 0) < self.highest.get("created", 0):
            self.gone = {name: max(number - totals.get(name, 0), 0) for name, number in self.shown().items()}
            self.highest = {}
        for name, number in totals.items():
            self.highest[name] = max(number, self.highest.get(name, 0))

    def shown(self) -> dict[str, int]:
        """The totals to show."""
        names = self.gone.keys() | self.highest.keys()
        return {name: self.gone.get(name, 0) + self.highest.get(name, 0) for name in sorted(names)}


class _Shown(Struct):
    topics: dict[str, Rising] = {}
    at: float = 0.0  # s, monotonic: the end of the last reading


class Totals:
    """The totals of all topics of a namespace. `folder`: where processes share them, or None."""

    def __init__(self, namespace: str = "", folder: Path | None = None) -> None:
        self._file = folder / f"totals-{namespace}.json" if folder else None
        self._shown = _Shown()

    def raised(self, topics: Mapping[str, Numbers], begun: float) -> dict[str, dict[str, int]]:
        """The totals to show for those that Redis returned to a request sent at `begun` (s, time.monotonic)."""
        if self._file is None:
            return self._raised(topics, begun)
        try:
            with locked(self._file.parent):
                self._read(self._file)
                shown = self._raised(topics, begun)
                self._write(self._file)
        except OSError:  # the folder was removed; then each process shows its own
            shown = self._raised(topics, begun)
        return shown

    def _raised(self, topics: Mapping[str, Numbers], begun: float) -> dict[str, dict[str, int]]:
        now = time.monotonic()
        # The order of two overlapping readings is unknown, and an older reading would look like an emptied Redis.
        alone = not begun < self._shown.at <= now
        for topic, totals in topics.items():
            if alone or topic not in self._shown.topics:
                self._shown.topics.setdefault(topic, Rising()).raise_to(totals)
        self._shown.at = now
        return {topic: self._shown.topics[topic].shown() for topic in topics}

    def _read(self, file: Path) -> None:
        try:
            self._shown = msgspec.json.decode(file.read_bytes(), type=_Shown)
        except (FileNotFoundError, msgspec.MsgspecError):
            self._shown = _Shown()

    def _write(self, file: Path) -> None:
        new = file.with_suffix(".new")
        new.write_bytes(msgspec.json.encode(self._shown))
        new.replace(file)


log = structlog.get_logger()

_PATIENCE_S = 3.0  # for Redis: a scraper gives up after 5 or 10 s, and should learn that Redis is down
_POUR_S = 0.1  # the longest age of another process's shared metrics
_SETTLED_S = 1.5 * _POUR_S  # after this, they include everything before the scrape
_SAME = "From Redis: all instances report the same, so take the maximum of the instances, not the sum."


class _Families(Collector):
    """Ready-made metrics, for `generate_latest`."""

    def __init__(self, metrics: Iterator[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        return self._metrics


class _Figures(NamedTuple):
    """The figures that a scrape reads from Redis. By topic: its statistics, whether it is paused, how many workers poll
    it, how many of these are blocked, and how long (s) its oldest dead letter has been dead. By shard: the bytes of the
    events that wait for a journal. The number of schedules, or None if it was not read. By server: its memory."""

    stats: Mapping[str, Stats] = {}
    paused: Mapping[str, bool] = {}
    polling: Mapping[str, int] = {}
    blocked: Mapping[str, int] = {}
    dead_s: Mapping[str, float] = {}
    waiting: Mapping[int, int] = {}
    schedules: int | None = None
    memory: Mapping[str, Memory] = {}


class Scrape:
    """The metrics of one process and the figures of its namespace. `folder`: where processes share their metrics."""

    def __init__(
        self,
        metrics: Metrics,
        topics: Topics,
        waiting: Waiting,
        pollers: Pollers,
        totals: Totals,
        folder: Path | None = None,
    ) -> None:
        self._metrics = metrics
        self._topics = topics
        self._waiting = waiting
        self._pollers = pollers
        self._totals = totals
        self._folder = folder

    async def text(self) -> bytes:
        """All metrics in the text format of Prometheus. If Redis does not answer, metrics from Redis have no values."""
        begun = time.monotonic()
        figures, _ = await asyncio.gather(self._figures(), self._others())
        self._metrics.pour(self._waiting.parked)
        return generate_latest(self._own()) + generate_latest(_Families(self._families(figures, begun)))

    async def _figures(self) -> _Figures | None:
        with contextlib.suppress(JobQueueError, TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                stats = await self._topics.figures(self._metrics.topic)
                named = [topic for topic in stats if topic != OTHER]
                ends = await self._topics.pauses(named)
                pollings = await self._pollers.read()
                return _Figures(
                    stats,
                    {topic: topic in ends for topic in named},
                    pollings.polling(),
                    pollings.blocked(),
                    await self._dead_for([topic for topic in named if stats[topic].counts.get(State.DEAD.word)]),
                    await stream_bytes(self._topics.pool),
                    await Schedules(self._topics.pool).count(),
                    await self._memory(),
                )
        return None

    async def _memory(self) -> dict[str, Memory]:
        servers = await self._topics.pool.redis.servers()
        return {server.name: memory_in(await facts_of(server, "memory")) for server in servers}

    async def _dead_for(self, topics: Sequence[str]) -> dict[str, float]:
        """How long (s) the oldest dead letter of each topic has been dead."""
        now_ms = await self._topics.pool.now_ms()
        deaths = await self._topics.oldest_deaths(topics)
        return {topic: max(now_ms - died, 0) / 1000 for topic, died in deaths.items()}

    async def _others(self) -> None:
        """Wait until the other processes have poured their counts from before this scrape."""
        if self._folder:
            await asyncio.sleep(_SETTLED_S)

    def _own(self) -> CollectorRegistry:
        if self._folder is None:
            return self._metrics.registry
        forget_killed(self._folder)
        registry = CollectorRegistry()
        MultiProcessCollector(registry, str(self._folder))  # type: ignore[no-untyped-call]
        return registry

    def _families(self, figures: _Figures | None, begun: float) -> Iterator[Metric]:
        yield InfoMetricFamily("jobqueue_build", "The version of the service.", value={"version": __version__})
        up = figures is not None
        yield GaugeMetricFamily("jobqueue_redis_up", "Whether Redis answered this scrape within 3 s.", value=float(up))
        figures = figures or _Figures()
        yield from self._by_topic(figures.stats, begun)
        yield from _of_named_topics(figures)
        yield _by_shard(figures)
        schedules = GaugeMetricFamily("jobqueue_schedules", f"Schedules, paused ones too. {_SAME}", labels=[])
        if figures.schedules is not None:
            schedules.add_metric([], figures.schedules)
        yield schedules
        yield from _by_server(figures)

    def _by_topic(self, figures: Mapping[str, Stats], begun: float) -> Iterator[Metric]:
        jobs = GaugeMetricFamily("jobqueue_jobs", f"Jobs now, by state. {_SAME}", labels=["topic", "state"])
        blocked = GaugeMetricFamily(
            "jobqueue_blocked_jobs", f"Ready jobs that wait for others of their key. {_SAME}", labels=["topic"]
        )
        oldest = GaugeMetricFamily(
            "jobqueue_oldest_ready_age_seconds",
            f"How long the oldest ready job that a pop may get has waited; 0 without one. {_SAME}",
            labels=["topic"],
        )
        events = CounterMetricFamily(
            "jobqueue_job_events", f"What happened to jobs, in total. {_SAME}", labels=["topic", "event"]
        )
        raised = self._totals.raised({topic: stats.totals for topic, stats in figures.items()}, begun)
        for topic, stats in sorted(figures.items()):
            for state in LIVE:
                jobs.add_metric([topic, state.word], stats.counts.get(state.word, 0))
            blocked.add_metric([topic], stats.blocked)
            if stats.oldest_ready_ms is not None:
                oldest.add_metric([topic], stats.oldest_ready_ms / 1000)
            elif stats.counts.get(State.READY.word, 0) == stats.blocked:
                oldest.add_metric([topic], 0)  # otherwise the age is unknown, and has no value
            for event, number in raised[topic].items():
                events.add_metric([topic, event], number)
        yield from (jobs, blocked, oldest, events)

    async def run(self) -> None:
        """Keep the metrics that other processes read from this process up to date, until cancelled."""
        while True:
            try:
                self._metrics.pour(self._waiting.parked)
            except Exception:
                log.exception("metrics.failed")
            await asyncio.sleep(_POUR_S)


def _of_named_topics(figures: _Figures) -> Iterator[Metric]:
    """The metrics that make no sense for the topics under `other`."""
    paused = GaugeMetricFamily("jobqueue_topic_paused", f"1 while the topic is paused. {_SAME}", labels=["topic"])
    polling = GaugeMetricFamily("jobqueue_polling_workers", f"Workers that poll the topic. {_SAME}", labels=["topic"])
    blocked = GaugeMetricFamily(
        "jobqueue_blocked_workers",
        f"Workers of the topic that take no jobs now, such as a sink whose broker is away. {_SAME}",
        labels=["topic"],
    )
    dead = GaugeMetricFamily(
        "jobqueue_oldest_dead_age_seconds",
        f"For how long the oldest dead letter of the topic has been dead; 0 without one. {_SAME}",
        labels=["topic"],
    )
    for topic, is_paused in sorted(figures.paused.items()):
        paused.add_metric([topic], float(is_paused))
        polling.add_metric([topic], figures.polling.get(topic, 0))
        blocked.add_metric([topic], figures.blocked.get(topic, 0))
        dead.add_metric([topic], figures.dead_s.get(topic, 0))
    yield from (paused, polling, blocked, dead)


def _by_server(figures: _Figures) -> Iterator[Metric]:
    """The memory of Redis."""
    used = GaugeMetricFamily(
        "jobqueue_redis_memory_used_bytes",
        f"Memory of a server of Redis that counts towards its maxmemory. {_SAME}",
        labels=["server"],
    )
    most = GaugeMetricFamily(
        "jobqueue_redis_memory_max_bytes", f"Its maxmemory; 0: there is no limit. {_SAME}", labels=["server"]
    )
    for server, memory in sorted(figures.memory.items()):
        used.add_metric([server], memory.used)
        most.add_metric([server], memory.limit)
    yield from (used, most)


def _by_shard(figures: _Figures) -> Metric:
    streams = GaugeMetricFamily(
        "jobqueue_journal_stream_bytes",
        f"Memory of the events that wait for a journal; no value where events are off. {_SAME}",
        labels=["shard"],
    )
    for shard, size in figures.waiting.items():
        streams.add_metric([str(shard)], size)
    return streams


def leave(metrics: Metrics, folder: Path) -> None:
    """Pour the last counts of a process that ends, which other processes then report, and remove its gauges."""
    metrics.pour(0)
    forget(folder)
