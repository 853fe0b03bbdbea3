"""A scrape: what `GET /metrics` answers, the process's own metrics and the figures of the namespace from Redis.

With PROMETHEUS_MULTIPROC_DIR set, processes of one machine keep their metrics in files there, and each answers with the
sum of all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import structlog
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from buckets import State, Stats, Topics, Waiting
from buckets.errors import JobQueueError
from buckets.job import LIVE
from jobqueue import __version__
from jobqueue.metrics.process import Metrics
from jobqueue.metrics.shared import forget, forget_killed
from jobqueue.metrics.totals import Totals

__all__ = ["CONTENT_TYPE_LATEST", "Scrape"]

log = structlog.get_logger()

_PATIENCE_S = 3.0  # for Redis: who scrapes gives up after 5 or 10 s, and wants to hear that Redis is away
_POUR_S = 0.1  # so old the shared metrics of another process may be
_SETTLED_S = 1.5 * _POUR_S  # after that, they hold what was before
_SAME = "From Redis: every instance says the same, so take the maximum of the instances and not their sum."


class _Families(Collector):
    """Metrics as they are, for `generate_latest`."""

    def __init__(self, metrics: Iterator[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        return self._metrics


class Scrape:
    """The metrics of one process and the figures of its namespace. `folder`: where processes share the former."""

    def __init__(
        self, metrics: Metrics, topics: Topics, waiting: Waiting, totals: Totals, folder: Path | None = None
    ) -> None:
        self._metrics = metrics
        self._topics = topics
        self._waiting = waiting
        self._totals = totals
        self._folder = folder

    async def text(self) -> bytes:
        """All metrics in Prometheus's text format; those from Redis have no values when it does not answer."""
        begun = time.monotonic()
        figures, _ = await asyncio.gather(self._figures(), self._others())
        self._metrics.pour(self._waiting.parked)
        return generate_latest(self._own()) + generate_latest(_Families(self._families(figures, begun)))

    async def _figures(self) -> Mapping[str, Stats] | None:
        with contextlib.suppress(JobQueueError, TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                return await self._topics.figures(self._metrics.topic)
        return None

    async def _others(self) -> None:
        """Let the other processes pour what they counted before this scrape."""
        if self._folder:
            await asyncio.sleep(_SETTLED_S)

    def _own(self) -> CollectorRegistry:
        if self._folder is None:
            return self._metrics.registry
        forget_killed(self._folder)
        registry = CollectorRegistry()
        MultiProcessCollector(registry, str(self._folder))  # type: ignore[no-untyped-call]
        return registry

    def _families(self, figures: Mapping[str, Stats] | None, begun: float) -> Iterator[Metric]:
        yield InfoMetricFamily("jobqueue_build", "The version of the service.", value={"version": __version__})
        up = figures is not None
        yield GaugeMetricFamily("jobqueue_redis_up", "Whether Redis answered this scrape within 3 s.", value=float(up))
        yield from self._by_topic(figures or {}, begun)

    def _by_topic(self, figures: Mapping[str, Stats], begun: float) -> Iterator[Metric]:
        jobs = GaugeMetricFamily("jobqueue_jobs", f"Jobs now, by state. {_SAME}", labels=["topic", "state"])
        oldest = GaugeMetricFamily(
            "jobqueue_oldest_ready_age_seconds",
            f"How long the oldest ready job has waited; 0 when none is ready. {_SAME}",
            labels=["topic"],
        )
        events = CounterMetricFamily(
            "jobqueue_job_events", f"What became of jobs, ever. {_SAME}", labels=["topic", "event"]
        )
        raised = self._totals.raised({topic: stats.totals for topic, stats in figures.items()}, begun)
        for topic, stats in sorted(figures.items()):
            for state in LIVE:
                jobs.add_metric([topic, state.word], stats.counts.get(state.word, 0))
            if stats.oldest_ready_ms is not None:
                oldest.add_metric([topic], stats.oldest_ready_ms / 1000)
            elif not stats.counts.get(State.READY.word):
                oldest.add_metric([topic], 0)  # else it is not known, and nothing is said
            for event, number in raised[topic].items():
                events.add_metric([topic, event], number)
        yield from (jobs, oldest, events)

    async def run(self) -> None:
        """Keep what the other processes read of this one up to date, for ever."""
        while True:
            try:
                self._metrics.pour(self._waiting.parked)
            except Exception:
                log.exception("metrics.failed")
            await asyncio.sleep(_POUR_S)


def leave(metrics: Metrics, folder: Path) -> None:
    """A process that ends leaves its counts to the others, and takes along what it holds."""
    metrics.pour(0)
    forget(folder)
