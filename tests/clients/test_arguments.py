"""How the Python client validates and converts its arguments before it sends anything."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, cast

import pytest
from jobqueue_client import AsyncClient, Client, Job, Retry, Worker, commands


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


@pytest.mark.parametrize("fields", [{}, {"if_exists": "replace"}, {"if_exists": None}])
def test_any_other_add_needs_a_body(fields: Any) -> None:
    with pytest.raises(TypeError, match="an add needs a body, except with if_exists later or sooner"):
        commands.add("t", ..., **fields)


def test_the_third_argument_of_an_add_is_its_delay() -> None:
    assert commands.add("t", 1, 1800, id="1").fields == commands.add("t", 1, delay=1800, id="1").fields
    assert commands.add("t", 1, timedelta(minutes=30)).fields["delay"] == 1800


@pytest.mark.parametrize(
    ("given", "came"),
    [
        ({"command": "stats"}, ", not a dict"),
        ("stats", ", not a str"),
        (None, ", not a NoneType"),
        ([1], "; one is a int"),
    ],
)
async def test_a_batch_of_no_commands_is_refused_with_one_that_would_do(given: Any, came: str) -> None:
    wanted = re.escape(f"batch needs a list of commands, such as [{{'command': 'stats'}}]{came}")
    with Client("http://localhost:1") as client, pytest.raises(TypeError, match=wanted):
        client.batch(given)
    async with AsyncClient("http://localhost:1") as aclient:
        with pytest.raises(TypeError, match=wanted):
            await aclient.batch(given)


@pytest.mark.parametrize("delay", ["30", "order-7", True, [30]], ids=str)
def test_a_delay_that_is_no_duration_is_refused(delay: Any) -> None:
    with pytest.raises(TypeError, match="delay must be a number"):
        commands.add("t", 1, delay)


def test_none_is_not_sent_but_for_a_body() -> None:
    assert commands.add("t", None, delay=None).fields == {"command": "add", "topic": "t", "body": None}
    assert commands.update("1", ttl=None).fields == {"command": "update", "id": "1"}
    assert commands.update("1", body=None).fields == {"command": "update", "id": "1", "body": None}


@pytest.mark.parametrize(
    "url",
    [
        "localhost:8000",
        "ftp://localhost",
        "http://",
        "http://a b",
        "http://h/?q=1",
        "http://h:x",
        "http://[::1",
        "http://:p@h",
    ],
)
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="url"):
        Client(url)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "give either url"),
        ({"url": "http://a", "urls": ["http://b"]}, "give either url"),
        ({"url": ["http://a"]}, 'url must be one URL, .* use urls=\\["http://one'),
        ({"url": "http://a,http://b"}, "url must be one URL"),
        ({"urls": "http://a"}, "urls must be a list"),
        ({"urls": []}, "urls must be a list of at least one"),
        ({"urls": ["http://a", "b"]}, "each of urls must be a service's URL"),
    ],
    ids=str,
)
def test_the_addresses_are_one_url_or_a_list_of_urls(given: dict[str, Any], words: str) -> None:
    for kind in (Client, AsyncClient, Worker):
        with pytest.raises(ValueError, match=words):
            kind(**given)


def test_a_header_that_would_break_the_request_is_refused() -> None:
    for headers in ({"Authorization": "a\r\nHost: b"}, {"a b": "c"}, {"a:": "c"}, {"": "c"}, {"a": cast(str, 1)}):
        with pytest.raises(ValueError, match="headers"):
            Client("http://localhost:8000", headers=headers)


@pytest.mark.parametrize("option", ["timeout_s", "connect_timeout_s", "retry_for_s"])
@pytest.mark.parametrize("value", [-1, math.nan, None, "1"], ids=str)
def test_an_option_of_a_client_that_cannot_be_is_refused_by_its_name(option: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{option} "):
        Client("http://localhost:8000", **{option: value})


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("concurrency", [0, 2.5, math.nan, "3"]),
        ("name", ["", "x" * 129, 5]),
        ("poll_s", [0, 61, math.nan]),
        ("grace_s", [-1, math.nan, None]),
        ("heartbeat_s", [-1, math.nan]),
        ("keep_alive_s", [-1, math.nan]),
        ("max_jobs", [0, 1.5, "3"]),
        ("max_time_s", [0, math.nan]),
        ("memory_mb", [0, -1, math.nan, "256"]),
        ("timeout_s", [0, math.inf]),
    ],
)
def test_an_option_of_a_worker_that_cannot_be_is_refused_by_its_name(option: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(ValueError, match=f"^{option} "):
            Worker("http://localhost:8000", **{option: value})


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
