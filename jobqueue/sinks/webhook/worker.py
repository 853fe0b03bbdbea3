"""The worker: takes jobs of its topics, sends the requests that they describe, and settles the jobs according to the
answers."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import structlog
from jobqueue_client import AsyncClient, Bury, Job, JobQueueError, Retry, Worker
from jobqueue_client.access import AccessFields
from msgspec import structs

from jobqueue.loops import stop_on_signals
from jobqueue.sinks import delivered_at
from jobqueue.sinks.webhook import callback as callbacks
from jobqueue.sinks.webhook import signature
from jobqueue.sinks.webhook.addresses import Guard, Network
from jobqueue.sinks.webhook.callback import BadCallback, Callback, judge, pause_s
from jobqueue.sinks.webhook.caller import Caller, Full, HostSlots, host_of
from jobqueue.tracing import HEADER as PARENT
from jobqueue.tracing import STATE, log_field, traceparent

log = structlog.get_logger()

_GRACE_S = 25.0  # the default of the client's worker
_AFTER_THE_CALL_S = 5.0  # to settle its job
# Events of the client that are logged here with more fields.
_OF_JOBS = ("job.started", "job.finished", "job.failed", "job.retried", "job.buried")

_WARNINGS = ("job.died", "job.lost", "job.expired", "service.lost")


@dataclass(frozen=True, slots=True)
class Options:
    """The options of `jobqueue callbacks`."""

    url: str
    topics: Sequence[str]
    concurrency: int
    per_host: int
    timeout_s: float
    connect_timeout_s: float
    networks: Sequence[Network]
    ports: Sequence[int]
    hosts: Sequence[str]
    keys: Sequence[bytes] = field(repr=False)
    topic_keys: Mapping[str, Sequence[bytes]] = field(repr=False)
    """The keys of topics that have their own; the others use `keys`."""
    access: AccessFields
    """The files of the client: for its token, and for its certificates."""


class Calls:
    """The handler of the jobs of a topic."""

    def __init__(self, caller: Caller, client: AsyncClient, keys: Sequence[bytes]) -> None:
        self._caller = caller
        self._client = client
        self._keys = keys

    async def handle(self, job: Job) -> None:
        """Send the request of one job. Raises Retry, Bury."""
        call = _Call(job)
        try:
            await self._call(job, call)
        except Full as full:
            raise Retry(full.after_s, attempt=False) from None
        except Bury as end:
            call.log(log.warning, "callback.buried", reason=end.reason)
            raise
        except Retry as again:
            call.log(log.warning, "callback.failed", reason=again.reason)
            raise await self._paced(job, again) from None
        except Exception as error:
            # Without its message and values: they may hold a URL or a payload.
            call.log(
                log.error, "callback.broke", reason=type(error).__name__, trace=traceback.format_tb(error.__traceback__)
            )
            raise await self._paced(job, Retry(reason=f"a defect of the worker: {type(error).__name__}")) from None
        call.log(log.info, "callback.called")

    async def _call(self, job: Job, call: _Call) -> None:
        try:
            callback = callbacks.read(job.body)
        except BadCallback as error:
            raise Bury(str(error)) from None
        call.host = host_of(callback.url)
        callback = _traced(callback, job.headers or {})

        def our_headers() -> dict[str, str]:
            return _job_headers(job) | signature.headers(job.id, int(time.time()), callback.body or b"", self._keys)

        answer = await self._caller.call(callback, our_headers, once=job.ttr == 0)
        call.status = answer.status
        judge(answer, callback.method, time.time())

    async def _paced(self, job: Job, again: Retry) -> Retry:
        """The same retry, with a pause if neither the answer nor the job has one: otherwise the job would be popped
        again at once."""
        if again.after is not None or job.ttr == 0:
            return again
        try:
            has_backoff = bool((await self._client.get(job.id))["backoff"])
        except (JobQueueError, KeyError):  # the service is away, or the job was deleted: a pause is harmless
            has_backoff = False
        return again if has_backoff else Retry(pause_s(job.attempt), reason=again.reason)


class _Call:
    """What is logged about one call."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._began = time.monotonic()
        self._late_s = round(delivered_at(job.lease) - (job.due if job.ready is None else job.ready), 3)
        self.host: str | None = None
        self.status: int | None = None

    def log(self, level: Callable[..., Any], event: str, **more: Any) -> None:
        job = self._job
        fields = {"id": job.id, "topic": job.topic, "host": self.host, "status": self.status, "attempt": job.attempt}
        fields |= log_field(job.trace_id)
        seconds = round(time.monotonic() - self._began, 3)
        level(event, **fields, seconds=seconds, late_s=self._late_s, **more)


def _job_headers(job: Job) -> dict[str, str]:
    return {"jobqueue-topic": job.topic, "jobqueue-attempt": str(job.attempt), "jobqueue-due": f"{job.due:.3f}"}


def _traced(callback: Callback, headers: Mapping[str, str]) -> Callback:
    """The callback with the trace that the job's headers have, if it is valid, unless its own headers have one."""
    parent, state = traceparent(headers.get(PARENT)), headers.get(STATE, "")
    if not parent or any(name.lower() in (PARENT, STATE) for name in callback.headers):
        return callback
    traced = {PARENT: parent} | ({STATE: state} if state.isascii() and state.isprintable() and state else {})
    return structs.replace(callback, headers={**traced, **callback.headers})


def _log_event(name: str, fields: dict[str, Any]) -> None:
    """Log the events of the client's worker in our form."""
    if name not in _OF_JOBS:
        level = log.warning if name in _WARNINGS else log.info
        # Without the error itself: its message may hold a URL or a payload.
        level(name, **{key: value for key, value in fields.items() if key != "error"})


async def work(options: Options) -> bool:
    """Work until SIGTERM or SIGINT. Returns whether all calls had ended. Raises Refused, and ValueError for a bad
    URL."""
    # Each name lookup occupies a thread, some for long; the default has too few.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(options.concurrency, "names"))
    worker = Worker(
        options.url,
        concurrency=options.concurrency,
        grace_s=max(_GRACE_S, options.timeout_s + _AFTER_THE_CALL_S),
        on_event=_log_event,
        **options.access,
    )
    slots = HostSlots(options.per_host, options.concurrency)
    guard = Guard(options.networks, options.ports, options.hosts)
    caller = Caller(guard, slots, options.timeout_s, options.connect_timeout_s)
    async with AsyncClient(options.url, retry_for_s=0, **options.access) as client, caller:
        for topic in options.topics:
            calls = Calls(caller, client, options.topic_keys.get(topic, options.keys))
            worker.job(topic)(calls.handle)
        return await _serve(worker)


async def _serve(worker: Worker) -> bool:
    """Serve until a signal; a second one ends the grace period. Returns whether all calls had ended."""
    serving = asyncio.create_task(worker.serve())
    stopping = False

    def stop() -> None:
        nonlocal stopping
        if stopping:
            serving.cancel()
        stopping = True
        worker.stop()

    stop_on_signals(stop)
    try:
        return await serving
    except asyncio.CancelledError:
        return False
