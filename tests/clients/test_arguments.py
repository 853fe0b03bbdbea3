"""How the Python client validates and converts its arguments before it sends anything."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, cast

import pytest
from jobqueue_client import Client, Job, Retry, Worker, commands


def test_a_naive_datetime_is_refused() -> None:
    with pytest.raises(ValueError, match="naive"):
        commands.add("t", 1, at=datetime(2026, 11, 21, 10))


def test_a_datetime_with_an_odd_offset_becomes_utc() -> None:
    local = timezone(timedelta(minutes=53, seconds=28))
    fields = commands.add("t", 1, at=datetime(2026, 11, 21, 10, 53, 28, 1500, tzinfo=local)).fields
    assert fields["at"] == "2026-11-21T10:00:00.001500+00:00"
    assert datetime.fromisoformat(fields["at"]) == datetime(2026, 11, 21, 10, 0, 0, 1500, tzinfo=UTC)


def test_a_timedelta_becomes_seconds() -> None:
    fields = commands.add("t", 1, delay=timedelta(minutes=30), backoff=[timedelta(seconds=1.5), 2]).fields
    assert (fields["delay"], fields["backoff"]) == (1800, [1.5, 2])


@pytest.mark.parametrize("how", ["later", "sooner"])
def test_an_add_that_moves_a_job_may_leave_its_body_as_it_is(how: Any) -> None:
    fields = commands.add("t", ..., 1800, id="1", if_exists=how, spread=timedelta(minutes=1)).fields
    assert fields == {"command": "add", "topic": "t", "id": "1", "delay": 1800, "spread": 60, "if_exists": how}
    assert commands.add("t", None, if_exists=how).fields["body"] is None


def test_a_delay_that_is_no_duration_is_refused() -> None:
    for delay in ("order-7", True, [30]):
        with pytest.raises(TypeError, match="delay must be a number"):
            commands.add("t", 1, cast(Any, delay))


def test_none_is_not_sent_but_for_a_body() -> None:
    assert commands.add("t", None, delay=None).fields == {"command": "add", "topic": "t", "body": None}
    assert commands.update("1", ttl=None).fields == {"command": "update", "id": "1"}
    assert commands.update("1", body=None).fields == {"command": "update", "id": "1", "body": None}


@pytest.mark.parametrize(
    ("kind", "option", "values"),
    [
        *((Client, option, [math.nan, None, "1"]) for option in ("timeout_s", "connect_timeout_s", "retry_for_s")),
        *((Worker, option, [math.nan, None]) for option in ("poll_s", "grace_s", "heartbeat_s", "keep_alive_s")),
        *((Worker, option, [math.nan, "1"]) for option in ("concurrency", "max_jobs", "max_time_s", "memory_mb")),
        (Worker, "name", [5]),
        (Worker, "timeout_s", [math.inf]),
    ],
)
def test_an_option_that_is_no_number_is_refused_by_its_name(kind: Any, option: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(ValueError, match=f"^{option} "):
            kind("http://localhost:8000", **{option: value})


@pytest.mark.parametrize("after", [-1, float("nan"), timedelta(days=4000)])
def test_a_retry_at_no_possible_time_is_refused(after: float | timedelta) -> None:
    with pytest.raises(ValueError, match="after"):
        Retry(after)


def test_a_sync_middleware_around_something_async_is_an_error_at_once() -> None:
    def sync(job: Job, call_next: Callable[[Job], Any]) -> Any:
        return call_next(job)

    async def later(job: Job, call_next: Callable[[Job], Any]) -> Any:
        return await call_next(job)

    async def handle(job: Job) -> None:
        pass

    worker = Worker("http://localhost:8000")
    worker.use(sync)
    with pytest.raises(TypeError, match="register the async ones first"):
        worker.use(later)
    with pytest.raises(TypeError, match="make the middleware `async def`"):
        worker.job("t")(handle)


def test_job_without_its_topic_is_an_error_at_once() -> None:
    def handle(job: Job) -> None:
        pass

    with pytest.raises(TypeError, match=r'@worker.job\("topic"\)'):
        Worker("http://localhost:8000").job(cast(str, handle))


def test_a_program_with_a_client_only_does_not_load_aiohttp() -> None:
    program = (
        "import sys, jobqueue_client as j; j.Client('http://a'); j.Bury, j.Retry; assert 'aiohttp' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    subprocess.run([sys.executable, "-c", "from jobqueue_client import *; Worker, AsyncClient"], check=True)
