"""A receiver of OTLP over HTTP, which keeps the spans that programs send to it: no registry has a collector."""

from __future__ import annotations

from types import TracebackType
from typing import NamedTuple, Self

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.kit.waiting import until


class Received(NamedTuple):
    """A span; ids are hexadecimal digits."""

    service: str
    """The name of the service that sent it."""
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    """Empty for the root of a trace."""
    kind: str
    attributes: dict[str, object]
    links: list[str]
    events: list[str]
    is_error: bool


class Collector:
    """Listens while its context is open."""

    def __init__(self) -> None:
        self.spans: list[Received] = []
        application = web.Application()
        application.router.add_post("/v1/traces", self._take)
        self._runner = web.AppRunner(application)
        self.url = ""

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    @property
    def environment(self) -> dict[str, str]:
        """What makes an SDK send its spans here, soon after they end."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": self.url, "OTEL_BSP_SCHEDULE_DELAY": "50"}

    def named(self, name: str) -> list[Received]:
        return [span for span in self.spans if span.name == name]

    async def one(self, name: str) -> Received:
        """The only span of this name; waits until it is there."""
        await until(lambda: bool(self.named(name)))
        (span,) = self.named(name)
        return span

    async def _take(self, request: web.Request) -> web.Response:
        sent = ExportTraceServiceRequest.FromString(await request.read())
        for resource in sent.resource_spans:
            service = str(_values(resource.resource.attributes)["service.name"])
            self.spans += [_read(service, span) for scope in resource.scope_spans for span in scope.spans]
        return web.Response(content_type="application/x-protobuf")


def _read(service: str, span: Span) -> Received:
    links = [f"{link.trace_id.hex()}-{link.span_id.hex()}" for link in span.links]
    return Received(
        *(service, span.name, span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()),
        Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        _values(span.attributes),
        links,
        [event.name for event in span.events],
        span.status.code == 2,
    )


def _values(attributes: object) -> dict[str, object]:
    found: dict[str, object] = {}
    for each in attributes:  # type: ignore[attr-defined]  # a repeated field of KeyValue
        assert isinstance(each, KeyValue)
        kind = each.value.WhichOneof("value")
        found[each.key] = getattr(each.value, kind) if kind else None
    return found
