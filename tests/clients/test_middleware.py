"""What runs around the handlers of the Python worker, async or in threads, and which logger it takes."""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio
from jobqueue_client import AsyncClient, Bury, Job, Worker

from tests.kit.service import ServiceProcess

pytestmark = pytest.mark.asyncio(loop_scope="module")


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


async def test_an_error_of_a_sync_handler_goes_through_async_middleware_which_may_turn_it_into_another_end(
    service: ServiceProcess, client: AsyncClient
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

    @worker.job("wrong")
    def handle(job: Job) -> None:
        raise ValueError(1)

    job = (await client.add("wrong", 1))["id"]
    assert await worker.serve()
    details = await client.get(job)
    assert (details["state"], details["reason"], len(seen)) == ("dead", "bad value", 1)


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


async def test_a_job_knows_when_it_became_ready_again() -> None:
    answer = {"id": "1", "topic": "t", "value": 1, "lease": 1, "attempt": 2, "tries": 16, "due": 1.5, "ttr": 60}
    assert Job.read({**answer, "headers": None, "ready": 7.5}).ready == 7.5
    assert Job.read({**answer, "headers": None}).ready is None
