"""The spans of commands (OpenTelemetry), which the setting `traces` turns on.

OpenTelemetry's SDK reads where the spans go, which of them are kept and the name of the service from its own variables,
`OTEL_…`. Nothing imports this module unless the setting is on: its libraries are the extra `traces`.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from jobqueue import __version__
from jobqueue.commands.answers import Answer
from jobqueue.tracing import HEADER, TRACE, traceparent

_TYPES = {"add": "send", "pop": "receive", "finish": "settle", "release": "settle", "bury": "settle"}
_FAULTS = ("INTERNAL", "UNAVAILABLE")  # the service's own errors; a refusal is not an error of the service
_FLUSH_S = 2.0  # at a stop, spans that have not been sent by then are lost


class CommandSpans:
    """Makes the spans of commands and sends them by OTLP over HTTP, in the background."""

    def __init__(self, instance: str) -> None:
        """`instance`: identifies this process among those of the service. Raises ValueError for an invalid variable of
        the SDK."""
        resource = Resource.create({"service.version": __version__, "service.instance.id": instance})
        if str(resource.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
            resource = resource.merge(Resource({SERVICE_NAME: "jobqueue"}))
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("jobqueue", __version__)
        self._propagator = TraceContextTextMapPropagator()

    def note(
        self, name: str, command: object, answers: Sequence[Answer], seconds: float | None, *, protocol: str
    ) -> None:
        """Make the span of commands of the same kind that were answered together just now. `command`: the first of
        them. `seconds`: how long they took; None if they never began. A pop that found nothing gets no span."""
        codes = [answer["code"] for answer in answers if "code" in answer]
        if name == "pop" and not codes and not any(answer.get("id") or answer.get("jobs") for answer in answers):
            return
        end_ns = time.time_ns()
        topic = getattr(command, "topic", None) or answers[0].get("topic")
        attributes = _attributes(name, topic, answers, codes) | {"jobqueue.protocol": protocol}
        own = (getattr(command, "headers", None) or {}).get(HEADER)
        # Over an empty context: a span of the service has no other parent.
        parent = self._propagator.extract({HEADER: TRACE.get() or traceparent(own)}, Context())
        title = f"{name} {topic}" if isinstance(topic, str) else name
        begun_ns = end_ns - round((seconds or 0) * 1e9)
        span = self._tracer.start_span(title, parent, SpanKind.SERVER, attributes, start_time=begun_ns)
        faults = [code for code in codes if code in _FAULTS]
        if faults:
            span.set_status(Status(StatusCode.ERROR, faults[0]))
        span.end(end_ns)

    async def close(self) -> None:
        """Send the spans that are left, for up to two seconds."""
        sent = asyncio.Event()
        tell = partial(asyncio.get_running_loop().call_soon_threadsafe, sent.set)

        def shut_down() -> None:
            self._provider.shutdown()
            with contextlib.suppress(RuntimeError):  # nobody waits any more: the loop is closed
                tell()

        # A daemon, because the SDK has no time-out here: beside a collector that hangs it takes up to 40 s.
        threading.Thread(target=shut_down, name="spans", daemon=True).start()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FLUSH_S):
                await sent.wait()


def _attributes(name: str, topic: object, answers: Sequence[Answer], codes: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {"messaging.system": "jobqueue", "messaging.operation.name": name}
    if name in _TYPES:
        found["messaging.operation.type"] = _TYPES[name]
    if isinstance(topic, str):
        found["messaging.destination.name"] = topic
    if codes:
        found["error.type"] = codes[0]
    if len(answers) > 1:
        found["messaging.batch.message_count"] = len(answers)
    elif isinstance(job_id := answers[0].get("id"), str):
        found["messaging.message.id"] = job_id
    return found
