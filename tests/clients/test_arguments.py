"""What the Python client makes of its arguments before it sends anything."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from jobqueue_client import Client, Retry, Worker, commands


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


def test_none_is_not_sent_but_for_a_body() -> None:
    assert commands.add("t", None, delay=None).fields == {"command": "add", "topic": "t", "body": None}
    assert commands.update("1", ttl=None).fields == {"command": "update", "id": "1"}
    assert commands.update("1", body=None).fields == {"command": "update", "id": "1", "body": None}


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://localhost", "http://", "http://a b", "http://h/?q=1"])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="URL"):
        Client(url)


def test_a_header_that_would_break_the_request_is_refused() -> None:
    with pytest.raises(ValueError, match="header"):
        Client("http://localhost:8000", headers={"Authorization": "a\r\nHost: b"})


@pytest.mark.parametrize("options", [{"concurrency": 0}, {"poll_s": 61}, {"name": ""}, {"grace_s": -1}])
def test_an_option_of_a_worker_that_cannot_be_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        Worker("http://localhost:8000", **options)


@pytest.mark.parametrize("after", [-1, float("nan"), timedelta(days=4000)])
def test_a_retry_at_no_possible_time_is_refused(after: float | timedelta) -> None:
    with pytest.raises(ValueError, match="after"):
        Retry(after)
