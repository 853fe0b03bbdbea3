"""The figures of all sinks of a process; docs/sinks.md describes them."""

from __future__ import annotations

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_OUTCOMES = ("confirmed", "refused", "poison", "returned", "sent_twice")


class Figures:
    """In a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        jobs = ("jobqueue_sink_jobs_total", "jobs by what became of them", ("sink", "outcome"))
        self.jobs = Counter(*jobs, registry=self.registry)
        self.confirm_s = self._seconds("confirm", "from sending to the confirmation")
        self.due_to_confirmed_s = self._seconds("due_to_confirmed", "from the due time to the confirmation")
        self.in_flight = self._gauge("in_flight", "messages without a confirmation")
        self.up = self._gauge("up", "1: the broker takes messages")
        self.topics_paused = self._gauge("topics_paused", "topics whose destination is missing or refuses them")
        reconnects = ("jobqueue_sink_reconnects_total", "attempts to reach the broker again", ("sink",))
        self.reconnects = Counter(*reconnects, registry=self.registry)

    def _seconds(self, name: str, means: str) -> Histogram:
        named = (f"jobqueue_sink_{name}_seconds", means, ("sink",))
        return Histogram(*named, buckets=_SECONDS, registry=self.registry)

    def _gauge(self, name: str, means: str) -> Gauge:
        return Gauge(f"jobqueue_sink_{name}", means, ("sink",), registry=self.registry)

    def show(self, sink: str) -> None:
        """Show a sink before anything has happened to it."""
        for outcome in _OUTCOMES:
            self.jobs.labels(sink, outcome)
        gauges = (self.in_flight, self.up, self.topics_paused)
        for each in (self.confirm_s, self.due_to_confirmed_s, *gauges, self.reconnects):
            each.labels(sink)

    def serve(self, host: str, port: int) -> None:
        """Answer scrapes. Raises OSError."""
        prometheus_client.start_http_server(port, host, registry=self.registry)
