"""buckets.pool.pool: each death has its line in the log, however a job died; very many have a sum."""

from __future__ import annotations

from typing import Any

import pytest

from buckets.clock import HeldClock
from buckets.pool.pool import MOST_A_SECOND, Deaths, Pool
from tests.buckets.jobs import add, pop
from tests.kit.waiting import tick_all, until


def lines(caplog: pytest.LogCaptureFixture, event: str = "job.died") -> list[dict[str, Any]]:
    return [record.__dict__ for record in caplog.records if record.getMessage() == event]


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[Any, ...]]:
    return [tuple(line[name] for name in ("id", "topic", "cause", "attempts", "worker")) for line in lines(caplog)]


async def delivered(pool: Pool, **options: Any) -> None:
    await add(pool, "a", **options)
    await pool.pop(["t"], worker="web1:412")


async def test_a_release_without_tries_left_is_logged_with_its_worker(
    pool: Pool, caplog: pytest.LogCaptureFixture
) -> None:
    await delivered(pool, tries=2)
    await pool.release("a", reason="first")
    assert told(caplog) == []
    await pop(pool)
    await pool.release("a", reason="again")
    assert told(caplog) == [("a", "t", "tries", 2, "web1:412")]
    assert lines(caplog)[0]["levelname"] == "WARNING"


async def test_a_buried_job_is_logged(pool: Pool, caplog: pytest.LogCaptureFixture) -> None:
    await delivered(pool)
    await pool.bury("a", reason="poison")
    assert told(caplog) == [("a", "t", "buried", 1, "web1:412")]


async def test_a_lease_that_ended_without_tries_left_is_logged_by_the_timer(
    pool: Pool, clock: HeldClock, caplog: pytest.LogCaptureFixture
) -> None:
    await delivered(pool, tries=1, ttr_ms=1000)
    clock.advance(1000)
    await tick_all(pool)
    assert told(caplog) == [("a", "t", "tries", 1, "web1:412")]


async def test_a_job_that_nobody_popped_in_time_is_logged_without_a_worker(
    pool: Pool, clock: HeldClock, caplog: pytest.LogCaptureFixture
) -> None:
    await add(pool, "a", ttl_ms=1000)
    await add(pool, "b")
    clock.advance(1000)
    await tick_all(pool)
    assert told(caplog) == [("a", "t", "ttl", 0, None)]


async def test_of_very_many_at_once_ten_have_a_line_and_the_others_a_sum(caplog: pytest.LogCaptureFixture) -> None:
    deaths = Deaths()
    for n in range(MOST_A_SECOND + 5):
        deaths.report([(b"a%d" % n, b"t" if n < MOST_A_SECOND + 3 else b"u", b"tries", 1, b"")])
    assert len(lines(caplog)) == MOST_A_SECOND
    await until(lambda: bool(lines(caplog, "jobs.died")))
    (line,) = lines(caplog, "jobs.died")
    assert (line["jobs"], line["topics"]) == (5, {"t": 3, "u": 2})
