"""jobqueue_client.testing: a shop tests that it closes unpaid orders, without waiting for half an hour."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from jobqueue_client import Bury, Client, Job, NotFound, Retry, Worker
from jobqueue_client.errors import UnknownCommand
from jobqueue_client.testing import Queue, Service
from jobqueue_client.testing.fixtures import jobqueue_url, queue

from tests.kit.service import ServiceProcess

__all__ = ["jobqueue_url", "queue"]  # the fixtures
HALF_AN_HOUR = timedelta(minutes=30)


class Shop:
    """What a user would test."""

    def __init__(self, url: str) -> None:
        self.client = Client(url)
        self.closed: list[int] = []
        self.worker = Worker("http://production.invalid")  # the kit asks its own service
        self.worker.job("order-close")(self.close)

    def place(self, order: int) -> None:
        self.client.add("order-close", {"order": order}, id=f"order-close:{order}", delay=HALF_AN_HOUR)

    def pay(self, order: int) -> None:
        self.client.delete(f"order-close:{order}")

    def close(self, job: Job) -> None:
        self.closed.append(job.body["order"])


@pytest.fixture
def shop(queue: Queue) -> Iterator[Shop]:
    shop = Shop(queue.url)
    yield shop
    shop.client.close()


def worker_of(*handlers: tuple[str, Any]) -> Worker:
    worker = Worker("http://production.invalid")
    for topic, handler in handlers:
        worker.job(topic)(handler)
    return worker


def test_an_order_that_is_not_paid_is_closed_after_half_an_hour(queue: Queue, shop: Shop) -> None:
    shop.place(1001)
    queue.assert_waiting("order-close", id="order-close:1001", body={"order": 1001}, delay=HALF_AN_HOUR)
    queue.advance(minutes=29)
    assert queue.drain(shop.worker) == []
    queue.advance(minutes=1)
    (done,) = queue.drain(shop.worker)
    assert shop.closed == [1001]
    assert (done.outcome, done.state, done.job.id) == ("finished", "finished", "order-close:1001")
    queue.assert_none_waiting()


def test_a_nightly_job_runs_when_the_clock_has_gone_through_its_night(queue: Queue) -> None:
    reported: list[int] = []
    worker = worker_of(("report", lambda job: reported.append(job.body["of"])))
    queue.client.schedule("nightly", "report", {"of": 1}, cron="30 2 * * *", zone="Europe/Berlin")
    assert queue.drain(worker) == []
    queue.advance(days=1)
    (done,) = queue.drain(worker)
    assert (reported, done.outcome, done.job.id.partition("@")[0]) == ([1], "finished", "nightly")
    assert queue.client.unschedule("nightly")["live"] == 0
    queue.advance(days=7)
    queue.assert_none_waiting()


def test_of_an_order_that_is_paid_nothing_waits(queue: Queue, shop: Shop) -> None:
    shop.place(1001)
    shop.pay(1001)
    queue.assert_none_waiting("order-close")
    queue.advance(hours=1)
    assert queue.drain(shop.worker) == []
    assert shop.closed == []


@pytest.mark.parametrize("test", ["one", "and the next"])
def test_each_test_begins_with_an_empty_queue_at_the_real_time(queue: Queue, shop: Shop, test: str) -> None:
    assert abs(queue.now.timestamp() - time.time()) < 5
    queue.assert_none_waiting()
    assert shop.client.add("order-close", {}, id="same")["result"] == "created"
    queue.client.delete("same")
    queue.advance(days=400)


def test_time_passes_in_any_unit(queue: Queue) -> None:
    begun = queue.now
    queue.advance(15)
    queue.advance(timedelta(seconds=15), seconds=30, minutes=1, hours=1, days=1)
    assert queue.now - begun - timedelta(days=1, hours=1, minutes=2) < timedelta(milliseconds=10)
    assert queue.now.tzinfo is UTC


def test_what_is_no_worker_is_refused(queue: Queue) -> None:
    with pytest.raises(TypeError, match="drain needs a Worker, not <function"):
        queue.drain(lambda job: None)  # type: ignore[arg-type]


def test_a_handler_that_asks_again_later_is_run_again_then(queue: Queue) -> None:
    asked: list[int] = []

    def poll(job: Job) -> None:
        asked.append(job.attempt)
        if job.attempt < 3:
            raise Retry(after=30 * job.attempt)

    worker = worker_of(("payment-poll", poll))
    queue.client.add("payment-poll", {"payment": 7}, id="p")
    assert [done.outcome for done in queue.drain(worker)] == ["retried"]
    queue.assert_waiting("payment-poll", id="p", delay=30)
    queue.advance(30)
    queue.drain(worker)
    queue.assert_waiting("payment-poll", delay=timedelta(minutes=1))
    queue.advance(minutes=1)
    assert [done.state for done in queue.drain(worker)] == ["finished"]
    assert asked == [1, 2, 3]


def test_an_error_of_a_handler_fails_the_test_and_the_job_climbs_its_back_off(queue: Queue) -> None:
    def fail(job: Job) -> None:
        raise LookupError("no such order")

    worker = worker_of(("order-close", fail))
    queue.client.add("order-close", {}, id="a", backoff=[15, 60])
    with pytest.raises(LookupError, match="no such order"):
        queue.drain(worker)
    queue.assert_waiting("order-close", id="a", delay=15)
    queue.advance(15)
    (done,) = queue.drain(worker, raise_errors=False)
    assert (done.outcome, done.state, str(done.error)) == ("failed", "delayed", "no such order")
    queue.assert_waiting("order-close", delay=60)


def test_what_is_buried_is_a_dead_letter(queue: Queue) -> None:
    def bury(job: Job) -> None:
        raise Bury("never paid")

    queue.client.add("payment-poll", {"payment": 7}, id="p")
    (done,) = queue.drain(worker_of(("payment-poll", bury)))
    assert (done.outcome, done.state) == ("buried", "dead")
    (dead,) = queue.dead()
    assert (dead.id, dead.body, dead.details["reason"]) == ("p", {"payment": 7}, "never paid")
    queue.assert_none_waiting()


def test_a_job_whose_worker_died_is_run_again_after_its_ttr(queue: Queue, shop: Shop) -> None:
    shop.client.add("order-close", {"order": 1}, ttr=60)
    assert queue.client.pop("order-close")  # by a worker that dies
    assert queue.drain(shop.worker) == []
    queue.advance(60)
    queue.drain(shop.worker)
    assert shop.closed == [1]


def test_a_job_that_a_handler_adds_is_run_too(queue: Queue) -> None:
    seen: list[str] = []

    def first(job: Job) -> None:
        seen.append("first")
        queue.client.add("second", {})

    async def second(job: Job) -> None:
        await asyncio.sleep(0)
        seen.append("second")

    queue.client.add("first", {}, ttr=0)
    done = queue.drain(worker_of(("first", first), ("second", second)))
    assert seen == ["first", "second"]
    assert [each.state for each in done] == ["finished", "finished"]


async def test_in_a_test_that_is_a_coroutine_handlers_run_in_its_loop(queue: Queue) -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    async def handler(job: Job) -> None:
        loops.append(asyncio.get_running_loop())

    queue.client.add("a", {})
    queue.client.add("b", {}, backoff=[60])
    worker = worker_of(("a", handler), ("b", lambda job: loops.append(asyncio.get_running_loop())))
    done = await queue.drain_async(worker, raise_errors=False)
    assert loops == [asyncio.get_running_loop()]
    assert [each.outcome for each in done] == ["finished", "failed"]  # sync ones run in threads, without a loop


def test_a_handler_that_cancels_its_own_job_has_lost_it(queue: Queue) -> None:
    queue.client.add("a", {}, id="a")
    (done,) = queue.drain(worker_of(("a", lambda job: queue.client.delete(job.id))))
    assert (done.outcome, done.state) == ("lost", "deleted")


def test_the_middleware_of_the_worker_runs_too(queue: Queue) -> None:
    worker = Worker(queue.url)
    steps: list[str] = []

    @worker.use
    async def around(job: Job, call_next: Callable[[Job], Awaitable[None]]) -> None:
        steps.append("before")
        await call_next(job)
        steps.append("after")

    @worker.job("around")
    def handle(job: Job) -> None:
        steps.append("handler")

    queue.client.add("around", 1)
    assert [done.outcome for done in queue.drain(worker)] == ["finished"]
    assert steps == ["before", "handler", "after"]


def test_a_job_that_never_ends_fails_the_test(queue: Queue) -> None:
    def again(job: Job) -> None:
        raise Retry(after=0, attempt=False)

    queue.client.add("a", {}, id="a")
    with pytest.raises(AssertionError, match="a is ready again at once"):
        queue.drain(worker_of(("a", again)))


def test_an_assert_that_fails_shows_what_is_waiting(queue: Queue, shop: Shop) -> None:
    shop.place(1001)
    queue.client.add("mail", "hello", id="m")
    with pytest.raises(AssertionError) as failed:
        queue.assert_waiting("order-close", delay=15)
    assert str(failed.value) == (
        "0 jobs, not one, wait in order-close with delay=15; waiting now:\n"
        "  order-close order-close:1001, due in 0:30:00: {'order': 1001}"
    )
    with pytest.raises(AssertionError, match="mail m, ready: 'hello'"):
        queue.assert_none_waiting()
    with pytest.raises(AssertionError, match="no job is waiting"):
        queue.assert_waiting("nothing")


def test_a_time_of_day_is_asserted_as_such(queue: Queue) -> None:
    at = (queue.now + timedelta(days=1)).replace(hour=9, minute=0, second=0, microsecond=0)
    queue.client.add("call", {}, at=at)
    for same in (at, at.timestamp(), at.isoformat(), at.astimezone()):
        queue.assert_waiting("call", at=same)
    with pytest.raises(AssertionError):
        queue.assert_waiting("call", at=at + timedelta(minutes=1))
    with pytest.raises(ValueError, match="naive"):
        queue.assert_waiting("call", at=datetime(2030, 1, 1))


def test_what_waits_is_listed_by_its_time_over_all_topics_and_pages(queue: Queue) -> None:
    for number in range(120):
        queue.client.add(f"t{number % 3}", number, delay=120 - number)
    queue.client.add("now", 120)
    assert [job.body for job in queue.waiting()] == list(range(120, -1, -1))


def test_two_jobs_are_not_one(queue: Queue) -> None:
    queue.client.add("mail", 1, id="a")
    queue.client.add("mail", 1, id="b")
    with pytest.raises(AssertionError, match="2 jobs, not one"):
        queue.assert_waiting("mail")
    assert queue.assert_waiting("mail", id="b").id == "b"


async def test_a_real_service_is_refused(tmp_path: Any) -> None:
    async with ServiceProcess("--data", str(tmp_path / "data")) as service:
        with pytest.raises(UnknownCommand):
            Queue(service.url)


def test_a_service_that_does_not_start_says_why() -> None:
    with pytest.raises(RuntimeError, match="--test excludes --redis"):
        Service("--redis", "redis://127.0.0.1:1").start()


def test_a_service_named_in_the_environment_is_used(
    queue: Queue, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBQUEUE_TEST_URL", "http://elsewhere")
    assert next(jobqueue_url.__wrapped__()) == "http://elsewhere"  # type: ignore[attr-defined]


def test_neither_the_client_nor_the_kit_needs_pytest() -> None:
    code = "import sys; sys.modules['pytest'] = None; import jobqueue_client, jobqueue_client.testing"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_job_that_is_gone_is_gone(queue: Queue) -> None:
    queue.client.add("a", {}, id="a")
    queue.reset()
    with pytest.raises(NotFound):
        queue.client.get("a")


def test_middleware_and_hooks_of_the_worker_run_too(queue: Queue) -> None:
    seen: list[object] = []
    worker = Worker(
        "http://production.invalid",
        on_error=lambda error, job: seen.append(("error", str(error))),
        on_death=lambda job, reason, error: seen.append(("death", job.id)),
    )

    @worker.use
    async def around(job: Job, call_next: Any) -> None:
        seen.append("begun")
        try:
            await call_next(job)
        finally:
            seen.append("ended")

    @worker.job("mail")
    def send(job: Job) -> None:
        seen.append(threading.current_thread() is threading.main_thread())
        raise ConnectionError("no mail server")

    queue.client.add("mail", {}, id="m", tries=1)
    (done,) = queue.drain(worker, raise_errors=False)
    assert seen == ["begun", True, "ended", ("error", "no mail server"), ("death", "m")]
    assert (done.outcome, done.state) == ("died", "dead")
