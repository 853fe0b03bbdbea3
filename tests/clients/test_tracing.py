"""Traces of the Python client and worker: with OpenTelemetry's SDK, against a service."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import pytest_asyncio
from jobqueue_client import AsyncClient, Bury, Job, Refused, Retry, Worker, commands
from jobqueue_client.calls import one
from jobqueue_client.errors import Unreachable
from jobqueue_client.http import Request
from jobqueue_client.options import Addresses, Route, loads
from jobqueue_client.tracing import traces
from opentelemetry import context, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, TraceState

from tests.kit.service import ServiceProcess
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

OTHER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Spans:
    """What the program's SDK has recorded."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.own = provider.get_tracer("jobqueue-client")
        """That of the client: the provider of the whole process would trace the tests of other files, too."""
        self.tracer = provider.get_tracer("a program")

    def clear(self) -> None:
        self._exporter.clear()

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span


@pytest.fixture(scope="module")
def _sdk() -> Spans:
    return Spans()


@pytest.fixture
def spans(_sdk: Spans, monkeypatch: pytest.MonkeyPatch) -> Spans:
    monkeypatch.setattr(traces, "_tracer", _sdk.own)
    _sdk.clear()
    return _sdk


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def url() -> AsyncIterator[str]:
    async with ServiceProcess("--test", workers=None) as service:
        yield service.url


@pytest_asyncio.fixture(loop_scope="module")
async def client(url: str) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(url) as client:
        yield client


def parent_of(span: ReadableSpan) -> str:
    """The header that a span writes."""
    own = span.context
    assert own
    return f"00-{own.trace_id:032x}-{own.span_id:016x}-{own.trace_flags:02x}"


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def events(span: ReadableSpan) -> dict[str, dict[str, Any]]:
    return {event.name: dict(event.attributes or {}) for event in span.events}


def links(span: ReadableSpan) -> list[str]:
    return [f"{link.context.trace_id:032x}-{link.context.span_id:016x}" for link in span.links]


def is_child(span: ReadableSpan, parent: ReadableSpan) -> bool:
    return bool(
        span.parent
        and parent.context
        and span.parent.span_id == parent.context.span_id
        and span.parent.trace_id == parent.context.trace_id
    )


async def test_an_add_is_a_span_and_its_context_travels_with_the_job(client: AsyncClient, spans: Spans) -> None:
    with spans.tracer.start_as_current_span("a request") as request:
        answer = await client.add("orders", 1, headers={"shop": "7"})
    send = spans.one("send orders")
    assert send.kind is SpanKind.PRODUCER and send.parent and send.parent.span_id == request.get_span_context().span_id
    assert attributes(send) == {
        "messaging.system": "jobqueue",
        "messaging.operation.name": "add",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
        "messaging.message.id": answer["id"],
    }
    assert (await client.get(answer["id"]))["headers"] == {"shop": "7", "traceparent": parent_of(send)}


async def test_a_trace_of_the_callers_own_stays(client: AsyncClient, spans: Spans) -> None:
    given = {"Traceparent": OTHER}
    answer = await client.add("orders", 1, headers=given)
    assert (await client.get(answer["id"]))["headers"] == given


@pytest.mark.parametrize(("own", "names"), [(14, ["traceparent", "tracestate"]), (15, ["traceparent"]), (16, [])])
async def test_headers_have_room_or_stay_as_they_are(
    client: AsyncClient, spans: Spans, own: int, names: Sequence[str]
) -> None:
    remote = trace.SpanContext(1, 2, is_remote=True, trace_flags=trace.TraceFlags(1), trace_state=_state("v"))
    given = {f"h{number}": "x" for number in range(own)}
    with trace.use_span(trace.NonRecordingSpan(remote)):
        answer = await client.add("orders", 1, headers=given)
    assert sorted((await client.get(answer["id"]))["headers"] or {}) == sorted([*given, *names])


async def test_a_long_trace_state_is_left_out(client: AsyncClient, spans: Spans) -> None:
    remote = trace.SpanContext(1, 2, is_remote=True, trace_flags=trace.TraceFlags(1), trace_state=_state("v" * 128))
    with trace.use_span(trace.NonRecordingSpan(remote)):
        answer = await client.add("orders", 1)
    assert [*((await client.get(answer["id"]))["headers"] or {})] == ["traceparent"]


def _state(value: str) -> TraceState:
    return TraceState([("vendor", value)])


async def test_the_adds_of_a_batch_share_a_span(client: AsyncClient, spans: Spans) -> None:
    adds: list[dict[str, Any]] = [
        {"command": "add", "topic": topic, "id": f"batch:{topic}", "body": 1} for topic in ("one", "two")
    ]
    await client.batch([*adds, {"command": "stats"}])
    send = spans.one("send")
    assert attributes(send)["messaging.batch.message_count"] == 2
    for add in adds:
        assert (await client.get(add["id"]))["headers"] == {"traceparent": parent_of(send)}
        assert "headers" not in add
    bad = {**adds[0], "id": "batch:3", "priority": 99}
    await client.batch([bad, {**bad, "priority": 1}])
    strange, _ = await client.batch([{"command": "add", "topic": ["one"], "body": 1}, {"command": "stats"}])
    assert isinstance(strange, Refused)
    refused = spans.one("send one")
    assert refused.status.status_code is StatusCode.ERROR and attributes(refused)["error.type"] == "BAD_FIELD"


async def test_a_schedule_gets_no_trace(client: AsyncClient, spans: Spans) -> None:
    with spans.tracer.start_as_current_span("a request"):
        await client.schedule("hourly", "orders", 1, every=3600)
    assert (await client.schedules())["schedules"][0].get("headers") is None


async def test_a_refused_add_is_an_error(client: AsyncClient, spans: Spans) -> None:
    with pytest.raises(Refused):
        await client.add("orders", 1, priority=10)
    send = spans.one("send orders")
    assert send.status.status_code is StatusCode.ERROR and attributes(send)["error.type"] == "BAD_FIELD"


async def test_a_repeated_add_has_the_same_trace(spans: Spans) -> None:
    call = one(commands.add("orders", 1, id="again"), Route(Addresses(["http://nowhere"])), 60, loads)
    first = next(call)
    pause = call.send(Unreachable("gone", maybe_done=True, for_now=True))
    second = next(call)
    assert isinstance(first, Request) and isinstance(second, Request) and isinstance(pause, int | float)
    assert b"traceparent" in first.data and first.data == second.data
    call.close()
    assert len(spans.named("send orders")) == 1


async def test_pops_are_linked_to_their_adds_and_ends_are_spans(client: AsyncClient, spans: Spans) -> None:
    await client.add("linked", 1, id="linked:1")
    assert await client.pop("nothing") is None
    job = await client.pop("linked")
    assert job and job.trace_id and spans.named("receive nothing") == []
    sent, receive = spans.one("send linked"), spans.one("receive linked")
    assert receive.kind is SpanKind.CLIENT and links(receive) == [parent_of(sent)[3:-3]]
    assert receive.start_time and sent.end_time and receive.start_time >= sent.end_time
    await client.finish(job)
    settle = spans.one("settle linked")
    assert attributes(settle)["messaging.operation.name"] == "finish"
    assert attributes(settle)["messaging.message.id"] == "linked:1"


@contextlib.asynccontextmanager
async def working(worker: Worker) -> AsyncIterator[None]:
    task = asyncio.create_task(worker.serve())
    try:
        yield
    finally:
        worker.stop()
        await task


async def test_a_handler_continues_the_trace_of_its_add(client: AsyncClient, spans: Spans, url: str) -> None:
    worker = Worker(url, poll_s=1)

    @worker.job("async")
    async def handle(job: Job) -> None:
        await client.add("follows", job.body, id=f"follows:{job.id}")

    @worker.job("sync")
    def handle_in_a_thread(job: Job) -> None:
        with spans.tracer.start_as_current_span(f"in {job.id}"):
            pass

    with spans.tracer.start_as_current_span("a request"):
        await client.add("async", 1, id="a")
        await client.add("sync", 1, id="b")
    async with working(worker):
        await until(lambda: bool(spans.named("process async") and spans.named("process sync")))
    request = spans.one("a request")
    for topic, inner in (("async", "send follows"), ("sync", "in b")):
        send, process, settle = (spans.one(f"{word} {topic}") for word in ("send", "process", "settle"))
        assert is_child(send, request) and is_child(process, send) and is_child(settle, process)
        assert process.kind is SpanKind.CONSUMER and links(process) == [parent_of(send)[3:-3]]
        assert attributes(process)["messaging.jobqueue.attempt"] == 1 and events(process) == {}
        assert is_child(spans.one(inner), process)
    assert spans.named("receive async") or spans.named("receive")


async def test_failures_redeliveries_and_dead_letters_are_events(
    client: AsyncClient, spans: Spans, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("jobqueue_client"), "handlers", [Verbatim()])
    told: list[dict[str, Any]] = []
    worker = Worker(url, poll_s=1, on_event=lambda name, fields: told.append({"name": name, **fields}))

    @worker.job("fails")
    async def fail(job: Job) -> None:
        raise ValueError("no such order")

    @worker.job("broken")
    async def broken(job: Job) -> None:
        context.attach(context.Context())  # of the handler's own, and never detached
        raise Unspeakable

    @worker.job("waits")
    async def wait(job: Job) -> None:
        if job.ready is None:
            raise Retry(0, attempt=False)
        raise Bury("it never comes")

    await client.add("fails", 1, id="fails", tries=2, backoff=[0])
    await client.add("waits", 1, id="waits")
    await client.add("broken", 1, tries=1)
    async with working(worker):
        await until(lambda: sum(len(spans.named(f"process {topic}")) for topic in ("fails", "waits", "broken")) == 5)
    first, last = spans.named("process fails")
    assert [*events(first)] == ["exception"] and events(first)["exception"]["exception.type"] == "ValueError"
    assert first.status.status_code is StatusCode.ERROR and attributes(first)["error.type"] == "ValueError"
    assert [*events(last)] == ["jobqueue.redelivery", "exception", "jobqueue.dead_letter"]
    assert events(last)["jobqueue.redelivery"] == {"messaging.jobqueue.attempt": 2}
    assert events(last)["jobqueue.dead_letter"] == {"reason": "ValueError: no such order"}
    again, buried = spans.named("process waits")
    assert events(again) == {} and again.status.status_code is StatusCode.UNSET
    assert [*events(buried)] == ["jobqueue.redelivery", "jobqueue.dead_letter"]
    deaths = {each["topic"]: each["trace_id"] for each in told if each["name"] == "job.died"}
    assert deaths == {topic: parent_of(spans.one(f"send {topic}"))[3:35] for topic in ("fails", "broken")}
    process = spans.one("process broken")
    assert attributes(process)["error.type"].endswith("Unspeakable") and "jobqueue.dead_letter" in events(process)
    assert is_child(spans.one("settle broken"), process)


class Verbatim(logging.Handler):
    """A handler of a log that raises what the text of an exception raises."""

    def emit(self, record: logging.LogRecord) -> None:
        assert record.exc_info is None or str(record.exc_info[1])


class Unspeakable(Exception):
    """An error whose text cannot be made."""

    def __str__(self) -> str:
        raise RuntimeError


_WITHOUT = """
import sys
sys.modules["opentelemetry"] = None  # as if it were not installed
from jobqueue_client import Client
from jobqueue_client.tracing import traces
with Client(sys.argv[1]) as client:
    client.add("untraced", 1, id="untraced")
    print(traces, client.get("untraced")["headers"])
"""


async def test_without_the_library_nothing_is_traced(url: str) -> None:
    command = [sys.executable, "-c", _WITHOUT, url]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "None None\n"
