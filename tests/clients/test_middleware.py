"""What runs around the handlers of the Python worker, and which limits, hooks and loggers it takes."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio
from jobqueue_client import AsyncClient, Bury, Job, Retry, Worker
from jobqueue_client.worker.contact import Contact
from jobqueue_client.worker.handlers import Handlers, Work
from jobqueue_client.worker.lease import Leases
from jobqueue_client.worker.limits import Limits
from jobqueue_client.worker.outbox import Outbox
from jobqueue_client.worker.report import Hooks, Report
from jobqueue_client.worker.stopping import Stopping

from tests.kit.service import ServiceProcess

pytestmark = pytest.mark.asyncio(loop_scope="module")

Fields = dict[str, Any]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ServiceProcess]:
    async with ServiceProcess("--data", str(tmp_path_factory.mktemp("data"))) as service:
        yield service


@pytest_asyncio.fixture(loop_scope="module")
async def client(service: ServiceProcess) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(service.url) as client:
        yield client


async def test_async_middleware_runs_around_async_and_sync_handlers_the_first_outermost(
    service: ServiceProcess, client: AsyncClient
) -> None:
    worker = Worker(service.url, poll_s=1, max_jobs=2)
    steps: list[str] = []

    @worker.use
    async def outer(job: Job, call_next: Callable[[Job], Awaitable[str]]) -> None:
        steps.append(f"{job.topic} outer")
        steps.append(f"{job.topic} {await call_next(job)}")

    async def inner(job: Job, call_next: Callable[[Job], Awaitable[None]]) -> str:
        steps.append(f"{job.topic} inner")
        await call_next(job)
        return "over"

    worker.use(inner)

    @worker.job("sync")
    def handle(job: Job) -> None:
        steps.append(f"sync in {threading.current_thread().name[:8]}")

    @worker.job("async")
    async def ahandle(job: Job) -> None:
        steps.append("async")

    for topic in ("sync", "async"):
        await client.add(topic, 1, id=f"both:{topic}")
    assert await worker.serve()
    for topic, handled in (("sync", "sync in jobqueue"), ("async", "async")):
        order = [f"{topic} outer", f"{topic} inner", handled, f"{topic} over"]
        assert [step for step in steps if step.startswith(topic)] == order
        assert (await client.get(f"both:{topic}"))["state"] == "finished"


async def test_a_middleware_that_forgets_to_await_the_handler_fails_the_job_instead_of_finishing_it(
    service: ServiceProcess, client: AsyncClient
) -> None:
    worker = Worker(service.url, poll_s=1, max_jobs=2)

    @worker.use
    async def forgets(job: Job, call_next: Callable[[Job], Awaitable[None]]) -> None:
        if job.id == "forgotten:skipped":
            return
        call_next(job)

    @worker.job("forgotten")
    async def handle(job: Job) -> None:
        pass

    for name in ("failed", "skipped"):
        await client.add("forgotten", 1, id=f"forgotten:{name}")
    assert await worker.serve()
    failed = await client.get("forgotten:failed")
    assert (failed["state"], failed["reason"]) == ("delayed", "RuntimeError: the middleware must await call_next(job)")
    assert (await client.get("forgotten:skipped"))["state"] == "finished"


async def test_sync_middleware_runs_in_the_thread_of_the_handler_within_async_middleware(
    service: ServiceProcess, client: AsyncClient
) -> None:
    worker = Worker(service.url, poll_s=1, max_jobs=1)
    threads: list[str] = []

    @worker.use
    async def outer(job: Job, call_next: Callable[[Job], Awaitable[None]]) -> None:
        await call_next(job)

    @worker.use
    def inner(job: Job, call_next: Callable[[Job], None]) -> None:
        threads.append(threading.current_thread().name)
        call_next(job)

    @worker.job("threads")
    def handle(job: Job) -> None:
        threads.append(threading.current_thread().name)

    await client.add("threads", 1)
    assert await worker.serve()
    assert len(threads) == 2 and threads[0] == threads[1] != threading.current_thread().name


@pytest.mark.parametrize("way", ["sync", "async"])
async def test_an_error_goes_through_the_middleware_which_may_turn_it_into_another_end(
    service: ServiceProcess, client: AsyncClient, way: str
) -> None:
    worker = Worker(service.url, poll_s=1, max_jobs=1)
    seen: list[BaseException] = []

    @worker.use
    async def buries(job: Job, call_next: Callable[[Job], Awaitable[None]]) -> None:
        try:
            await call_next(job)
        except ValueError as error:
            seen.append(error)
            raise Bury("bad value") from error

    def handle(job: Job) -> None:
        raise ValueError(1)

    async def ahandle(job: Job) -> None:
        raise ValueError(1)

    worker.job(f"wrong-{way}")(handle if way == "sync" else ahandle)
    job = (await client.add(f"wrong-{way}", 1))["id"]
    assert await worker.serve()
    details = await client.get(job)
    assert (details["state"], details["reason"], len(seen)) == ("dead", "bad value", 1)


class Told:
    """What the hooks were told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Fields]] = []
        self.errors: list[tuple[BaseException, str]] = []
        self.deaths: list[tuple[str, str | None, BaseException]] = []

    @property
    def hooks(self) -> Fields:
        return {
            "on_event": lambda name, fields: self.events.append((name, fields)),
            "on_error": lambda error, job: self.errors.append((error, job.id)),
            "on_death": lambda job, reason, error: self.deaths.append((job.id, reason, error)),
        }

    def of(self, job: str) -> dict[str, Fields]:
        return {name: fields for name, fields in self.events if fields.get("id") == job}


async def test_the_hooks_are_told_of_errors_and_deaths_with_the_error_itself(
    service: ServiceProcess, client: AsyncClient
) -> None:
    told = Told()
    worker = Worker(service.url, poll_s=1, max_jobs=4, **told.hooks)
    broken, retry, buried = RuntimeError("broken"), Retry(), Bury("poison")

    @worker.job("ends")
    async def handle(job: Job) -> None:
        raise {"fails": broken, "dies": broken, "retries": retry, "buries": buried}[job.body]

    for body in ("fails", "dies", "retries", "buries"):
        await client.add("ends", body, id=body, tries=2 if body == "fails" else 1, backoff=[60])
    assert await worker.serve()
    assert sorted(told.errors, key=str) == sorted([(broken, "fails"), (broken, "dies")], key=str)
    assert sorted(told.deaths, key=str) == sorted(
        [
            ("dies", "RuntimeError: broken", broken),
            ("retries", "the tries ran out: 1 of 1", retry),
            ("buries", "poison", buried),
        ],
        key=str,
    )
    assert told.of("fails").keys() == {"job.started", "job.failed"}
    assert told.of("dies").keys() == {"job.started", "job.failed", "job.died"}
    assert told.of("retries").keys() == {"job.started", "job.died"}
    for job in ("dies", "retries"):
        died = told.of(job)["job.died"]
        assert died["error"] in (broken, retry) and (died["topic"], died["attempt"]) == ("ends", 1)
    stopped = dict(told.events)["worker.stopped"]
    sums = {"finished": 0, "failed": 2, "retried": 0, "buried": 1, "died": 2, "lost": 0}
    assert {name: stopped[name] for name in sums} == sums
    assert dict(told.events)["worker.stopping"]["reason"] == "max_jobs"
    assert (await client.get("retries"))["reason"] == "the tries ran out: 1 of 1"


async def test_a_worker_takes_no_more_than_max_jobs(service: ServiceProcess, client: AsyncClient) -> None:
    for number in range(30):
        await client.add("limit", number)
    worker = Worker(service.url, poll_s=1, max_jobs=12, concurrency=5)
    seen: list[int] = []

    @worker.job("limit")
    async def handle(job: Job) -> None:
        await asyncio.sleep(0)
        seen.append(job.body)

    assert await worker.serve()
    assert len(seen) == 12
    assert (await client.stats("limit"))["counts"]["ready"] == 18


@pytest.mark.parametrize(("limit", "reason"), [({"max_time_s": 0.1}, "max_time"), ({"memory_mb": 1}, "memory")])
async def test_a_worker_stops_in_order_after_its_time_or_with_too_much_memory(
    service: ServiceProcess, client: AsyncClient, limit: Fields, reason: str
) -> None:
    told = Told()
    worker = Worker(service.url, poll_s=1, **limit, **told.hooks)

    @worker.job("limits")
    async def handle(job: Job) -> None:
        await asyncio.sleep(0.2)

    job = (await client.add("limits", 1))["id"]
    assert await worker.serve()
    assert dict(told.events)["worker.stopping"]["reason"] == reason
    assert (await client.get(job))["state"] in ("finished", "ready")


async def test_the_log_goes_to_the_given_logger(
    service: ServiceProcess, client: AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    worker = Worker(service.url, poll_s=1, max_jobs=1, logger=logging.getLogger("shop.jobs"))

    @worker.job("logged")
    def handle(job: Job) -> None:
        raise RuntimeError("no price")

    await client.add("logged", 1, tries=1)
    assert await worker.serve()
    record = next(record for record in caplog.records if record.getMessage().startswith("job.failed"))
    assert record.name == "shop.jobs" and record.exc_info
    assert "RuntimeError: no price" in record.getMessage()
    assert any(each.levelname == "ERROR" and "job.died" in each.getMessage() for each in caplog.records)
    assert not any(each.name == "jobqueue_client" for each in caplog.records)


async def test_the_lateness_is_that_of_this_delivery(service: ServiceProcess, client: AsyncClient) -> None:
    told = Told()
    now = time.time()
    report = Report(Hooks(**told.hooks))
    outbox, limits = Outbox(), Limits(None, None, None, Stopping())

    async def handle(job: Job) -> None:
        pass

    leases = Leases(client, Contact(report), report, 60)
    handlers = Handlers(Work({"t": handle}, []), 3, limits, outbox, leases, report)
    for job, due, ready in (("first", now - 20, None), ("again", now - 60, now - 20)):
        handlers.begin(Job(job, "t", 1, lease=1, attempt=1, tries=0, due=due, ttr=0, ready=ready))
    await handlers.idle()
    lateness = [fields["late_s"] for name, fields in told.events if name == "job.started"]
    assert lateness == [pytest.approx(20, abs=5)] * 2


async def test_a_job_knows_when_it_became_ready_again(service: ServiceProcess, client: AsyncClient) -> None:
    answer = {"id": "1", "topic": "t", "value": 1, "lease": 1, "attempt": 2, "tries": 16, "due": 1.5, "ttr": 60}
    assert Job.read({**answer, "headers": None, "ready": 7.5}).ready == 7.5
    assert Job.read({**answer, "headers": None}).ready is None
