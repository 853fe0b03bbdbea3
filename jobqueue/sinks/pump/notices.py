"""What a sink reports: notices to the service (why the sink takes no jobs, or none of some topics, as `workers` and
`check` show it), and the figures of all sinks of a process, which docs/sinks.md describes.

Answers of the service are read here without parsing the bodies of jobs.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import msgspec
import prometheus_client
from jobqueue_client import AsyncClient, JobQueueError
from jobqueue_client.access import AccessFields
from msgspec import Raw
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from jobqueue.schema.fields import LONGEST_NAME
from jobqueue.sinks import Common

_AGAIN_S = 30.0  # the service forgets a worker after 90 s


class Notices:
    """The notices of one sink."""

    def __init__(self, name: str, settings: Common, url: str, access: AccessFields) -> None:
        self._name, self._topics, self._url, self._access = name, settings.topics, url, access
        self._down = ""
        self._paused: dict[str, str] = {}
        self._changed = asyncio.Event()

    def down(self, reason: str) -> None:
        """Note why the broker accepts no messages; if `reason` is empty, it accepts them."""
        if reason != self._down:
            self._down = reason
            self._changed.set()

    def paused(self, topic: str, reason: str) -> None:
        """Note why a topic is paused; if `reason` is empty, it is not paused."""
        if reason != self._paused.get(topic, ""):
            self._paused[topic] = reason
            self._changed.set()

    async def run(self) -> None:
        """Report to the service until cancelled."""
        is_told = False
        async with AsyncClient(self._url, retry_for_s=0, **self._access) as client:
            while True:
                self._changed.clear()
                notices = self._notices()
                with contextlib.suppress(JobQueueError):  # it is away, as the worker reports, or knows no notices
                    if is_told:
                        await client.leave(self._worker)
                    if notices:
                        await client.batch(notices)
                    is_told = bool(notices)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_AGAIN_S if notices else None):
                        await self._changed.wait()

    @property
    def _worker(self) -> str:
        return f"sink-{self._name}"

    def _notices(self) -> list[dict[str, Any]]:
        if self._down:
            return [self._notice(list(self._topics), self._down)]
        return [self._notice([topic], reason) for topic, reason in self._paused.items() if reason]

    def _notice(self, topics: list[str], reason: str) -> dict[str, Any]:
        blocked = f"sink {self._name}: {reason}"[:LONGEST_NAME]
        return {"command": "pop", "topics": topics, "count": 1, "worker": self._worker, "blocked": blocked}


_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_OUTCOMES = ("confirmed", "refused", "poison", "returned", "sent_twice")


class Figures:
    """The figures of all sinks, in a registry of their own."""

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


_Fields = dict[str, Raw]
_either = msgspec.json.Decoder(_Fields | list[_Fields])
_jobs = msgspec.json.Decoder(list[_Fields])
_any = msgspec.json.Decoder()


def loads(data: bytes) -> Any:
    """Like json.loads, except that the bodies of jobs are the bytes of their JSON. Raises ValueError."""
    answer = _either.decode(data)
    return [_read(each) for each in answer] if isinstance(answer, list) else _read(answer)


def _read(fields: _Fields) -> dict[str, Any]:
    return {name: _value(name, value) for name, value in fields.items()}


def _value(name: str, value: Raw) -> Any:
    if name == "value":
        return bytes(value)
    return [_read(each) for each in _jobs.decode(value)] if name == "jobs" else _any.decode(value)
