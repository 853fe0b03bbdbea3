"""Traces (OpenTelemetry): the spans of adds, pops, handlers and the ends of jobs, and the context in a job's headers.

The spans follow OpenTelemetry's semantic conventions for messaging. The context travels from the add to the handler as
W3C Trace Context, in the job's headers, whatever propagator the program has: workers in other languages read it, too.

`traces` is None unless `opentelemetry-api` is installed; no other line of this module runs then. With the API, but
without an SDK, nothing is recorded, and only a context that came from elsewhere is passed on.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from jobqueue_client.commands import Command
from jobqueue_client.errors import JobQueueError, Refused
from jobqueue_client.job import Job

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Tracer

try:
    from opentelemetry import context as contexts
    from opentelemetry import trace
    from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError:
    _IS_POSSIBLE = False
else:
    _IS_POSSIBLE = True

T = TypeVar("T")
_Call = Generator[Any, Any, T]
"""See `calls`."""

_SCOPE = "jobqueue-client"
_PARENT, _STATE = "traceparent", "tracestate"
_MOST_HEADERS, _LONGEST_HEADER = 16, 128  # the protocol's limits for the headers of a job
_MOST_LINKS = 128  # that a span keeps, unless its SDK says otherwise
_SETTLING = ("finish", "release", "bury")
_TOPIC, _ID, _COUNT = "messaging.destination.name", "messaging.message.id", "messaging.batch.message_count"
_ATTEMPT = "messaging.jobqueue.attempt"


class _Message(NamedTuple):
    """What a span says about a job."""

    id: str | None
    topic: str
    headers: Mapping[str, str] | None


class Traces:
    """Makes spans with the program's tracer provider."""

    def __init__(self) -> None:
        self._propagator = TraceContextTextMapPropagator()

    @functools.cached_property
    def _tracer(self) -> Tracer:
        """A proxy, until the program sets its provider. Not made before the first span: it may load a provider that the
        environment names."""
        return trace.get_tracer(_SCOPE)

    def command(self, command: Command[T], call: _Call[T]) -> _Call[T]:
        """The call of a command, in a span if its kind has one. An add gets its context in the command's fields, which
        are not sent before the call begins."""
        fields = command.fields
        name = fields["command"]
        if name == "add":
            return self._adding(fields, call)
        if name == "pop":
            return self._popping(fields, call)
        return self._settling(command, call) if name in _SETTLING else call

    def batch(
        self, commands: Sequence[Mapping[str, Any]], call: Callable[[Sequence[Mapping[str, Any]]], _Call[list[Any]]]
    ) -> _Call[list[Any]]:
        """The call of a batch: a span for all of its adds, and one for each pop that returns jobs. `call`: makes the
        call for the commands, whose adds have their context. Ends in a batch have no spans of their own here."""
        adds = [number for number, each in enumerate(commands) if each.get("command") == "add"]
        begun_ns = time.time_ns()
        if adds:
            results = yield from self._adding_many(commands, adds, call)
        else:
            results = yield from call(commands)
        for command, result in zip(commands, results, strict=True):
            if command.get("command") == "pop" and isinstance(result, Mapping):
                self._received(command, list(_jobs_in(result)), begun_ns)
        return results

    def with_current_context(self, add: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of an add that is written elsewhere, with the context of the current span."""
        return self._with_context(add, trace.get_current_span())

    @contextlib.contextmanager
    def processing(self, job: Job) -> Iterator[Span]:
        """The span of a job's handler, which is current until the job's end is answered. It continues the trace of the
        add, and is linked to it. Used in the task of the job."""
        added = self._context_of(job.headers)
        span = self._begin("process", "process", job.topic, SpanKind.CONSUMER, added, _links(added))
        span.set_attributes({_ID: job.id, _ATTEMPT: job.attempt})
        if job.attempt > 1 or job.ready is not None:
            span.add_event("jobqueue.redelivery", {_ATTEMPT: job.attempt})
        # Not detached: the task of the job ends with its span, and its context with it.
        contexts.attach(trace.set_span_in_context(span))
        try:
            yield span
        except BaseException:  # only the worker's own cancellation gets here
            span.add_event("jobqueue.lost", {"reason": job.lost or ""})
            raise
        finally:
            span.end()

    def ended(self, span: Span, error: BaseException | None, *, event: str, reason: str | None) -> None:
        """Note how the handler of a span ended. `error`: what is wrong with the handler; `event`: the event of the
        job's end; `reason`: the reason of a dead or lost job."""
        if error is not None:
            with contextlib.suppress(Exception):  # an error whose text cannot be made
                span.record_exception(error)
            _fail(span, error, _name(error))
        if event in ("job.died", "job.buried"):
            span.add_event("jobqueue.dead_letter", {"reason": reason or ""})
        elif event == "job.lost":
            span.add_event("jobqueue.lost", {"reason": reason or ""})

    @contextlib.contextmanager
    def settling(
        self, command: Mapping[str, Any], topic: str | None = None, process: Span | None = None
    ) -> Iterator[None]:
        """A span around a finish, release or bury, until it is answered. `process`: the span of the handler, or None
        for the current one."""
        parent = None if process is None else trace.set_span_in_context(process)
        span = self._begin("settle", command["command"], topic, SpanKind.CLIENT, parent)
        span.set_attribute(_ID, command["id"])
        with _ending(span):
            yield

    def _adding(self, fields: dict[str, Any], call: _Call[T]) -> _Call[T]:
        span = self._begin("send", "add", fields["topic"], SpanKind.PRODUCER)
        fields |= self._with_context(fields, span)
        with _ending(span):
            result: Any = yield from call
            span.set_attribute(_ID, result.get("id") or "")
        return result  # type: ignore[no-any-return]  # the call's T

    def _adding_many(
        self,
        commands: Sequence[Mapping[str, Any]],
        adds: Sequence[int],
        call: Callable[[Sequence[Mapping[str, Any]]], _Call[list[Any]]],
    ) -> _Call[list[Any]]:
        topic = _only([commands[number].get("topic") for number in adds])
        span = self._begin("send", "add", topic, SpanKind.PRODUCER)
        span.set_attribute(_COUNT, len(adds))
        given = list(commands)
        for number in adds:
            given[number] = self._with_context(commands[number], span)
        with _ending(span):
            results = yield from call(given)
            refused = [results[number] for number in adds if isinstance(results[number], JobQueueError)]
            if refused:
                _fail(span, refused[0])
        return results

    def _popping(self, fields: dict[str, Any], call: _Call[T]) -> _Call[T]:
        begun_ns = time.time_ns()
        result = yield from call
        jobs = result if isinstance(result, list) else [result]
        self._received(
            fields, [_Message(job.id, job.topic, job.headers) for job in jobs if isinstance(job, Job)], begun_ns
        )
        return result

    def _settling(self, command: Command[T], call: _Call[T]) -> _Call[T]:
        with self.settling(command.fields, command.topic):
            return (yield from call)

    def _received(self, pop: Mapping[str, Any], jobs: Sequence[_Message], begun_ns: int) -> None:
        """Make the span of a pop that returned jobs. A pop without a job, such as an empty poll, has none."""
        if not jobs:
            return
        links = [link for job in jobs[:_MOST_LINKS] for link in _links(self._context_of(job.headers))]
        topic = _only([job.topic for job in jobs])
        span = self._begin("receive", "pop", topic, SpanKind.CLIENT, links=links, start_ns=begun_ns)
        if pop.get("count") is not None:
            span.set_attribute(_COUNT, len(jobs))
        else:
            span.set_attribute(_ID, jobs[0].id or "")
        span.end()

    def _begin(
        self,
        operation: str,
        name: str,
        topic: str | None,
        kind: SpanKind,
        parent: Context | None = None,
        links: Sequence[Link] = (),
        start_ns: int | None = None,
    ) -> Span:
        attributes = {"messaging.system": "jobqueue", "messaging.operation.name": name}
        attributes |= {"messaging.operation.type": operation, **({_TOPIC: topic} if topic else {})}
        title = f"{operation} {topic}" if topic else operation
        return self._tracer.start_span(title, parent, kind, attributes, links, start_ns)

    def _context_of(self, headers: Mapping[str, str] | None) -> Context | None:
        """The context in the headers of a job, or None."""
        if not headers or _PARENT not in headers:
            return None
        # Over an empty context: the caller's own span must not take the place of a context that is invalid.
        found = self._propagator.extract(headers, contexts.Context())
        return found if trace.get_current_span(found).get_span_context().is_valid else None

    def _with_context(self, add: Mapping[str, Any], span: Span) -> dict[str, Any]:
        """The fields of an add, with the context of a span in its headers, if there is room. A trace of the caller's
        own stays."""
        headers = add.get("headers")
        if headers is None:
            headers = {}
        if not isinstance(headers, Mapping) or any(str(name).lower() in (_PARENT, _STATE) for name in headers):
            return {**add}
        own: dict[str, str] = {}
        self._propagator.inject(own, trace.set_span_in_context(span))
        state = own.pop(_STATE, "")
        if own and state and len(state) <= _LONGEST_HEADER and len(headers) + 2 <= _MOST_HEADERS:
            own[_STATE] = state
        return {**add, "headers": {**headers, **own}} if own and len(headers) < _MOST_HEADERS else {**add}


def _jobs_in(answer: Mapping[str, Any]) -> Iterator[_Message]:
    """The jobs in the answer to a pop, as far as they are jobs: nobody has checked it yet."""
    jobs = answer.get("jobs", [answer])
    for job in jobs if isinstance(jobs, list) else []:
        if isinstance(job, Mapping) and isinstance(job.get("id"), str) and isinstance(job.get("topic"), str):
            headers = job.get("headers")
            yield _Message(job["id"], job["topic"], headers if isinstance(headers, Mapping) else None)


def _only(topics: Sequence[Any]) -> str | None:
    """The topic, if it is the same for all. A member of a batch may have anything there."""
    first = topics[0]
    return first if isinstance(first, str) and all(topic == first for topic in topics) else None


def _links(added: Context | None) -> list[Link]:
    return [] if added is None else [Link(trace.get_current_span(added).get_span_context())]


@contextlib.contextmanager
def _ending(span: Span) -> Iterator[None]:
    """End the span, and note the error that the block raises."""
    try:
        yield
    except Exception as error:
        _fail(span, error)
        raise
    finally:
        span.end()


def _fail(span: Span, error: BaseException, kind: str | None = None) -> None:
    """Note an error. `kind`: its type; None for the service's code or, without one, the name of its class."""
    code = error.code if isinstance(error, Refused) else None
    span.set_attribute("error.type", kind or code or _name(error))
    try:
        text = str(error)
    except Exception:  # a broken __str__ must not hide how the job ended
        text = ""
    span.set_status(Status(StatusCode.ERROR, text))


def _name(error: BaseException) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


traces = Traces() if _IS_POSSIBLE else None
"""Makes the spans; None without OpenTelemetry's API."""
