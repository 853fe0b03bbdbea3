"""jobqueue.engine.new_jobs: what an add becomes."""

from __future__ import annotations

import pytest

from jobqueue.engine.new_jobs import Policies, new_id, new_job, spread_ms
from jobqueue.schema.params import Add
from jobqueue.settings import Settings

POLICIES = Policies(Settings())


def test_a_spread_is_the_same_for_an_id_in_every_version() -> None:
    """Other versions on the same Redis, and those to come, must find the same moment."""
    assert [spread_ms(Add("t", id=job_id, spread=86_400)) for job_id in ("a", "b", "order:1001")] == [
        21_927_768,
        44_701_297,
        46_730_955,
    ]


@pytest.mark.parametrize("spread", [0.001, 0.0015, 60, 86_400])
def test_a_spread_stays_within_its_bounds_and_reaches_both(spread: float) -> None:
    found = [spread_ms(Add("t", id=f"{number}", spread=spread)) for number in range(5_000)]
    most = {0.001: 1, 0.0015: 2}.get(spread, int(spread * 1000))
    assert min(found) >= 0 and max(found) <= most
    assert min(found) <= most // 1000 and max(found) >= most - most // 1000


@pytest.mark.parametrize("name", ["{}", "sensor:{:09}", "2026-11-23@{}", "made"])
def test_similar_ids_are_spread_evenly(name: str) -> None:
    """Each of 60 seconds gets its part of 6,000 jobs, give or take what chance does."""
    ids = (new_id() if name == "made" else name.format(number) for number in range(6_000))
    seconds = [0] * 60
    for job_id in ids:
        seconds[min(spread_ms(Add("t", id=job_id, spread=60)) // 1000, 59)] += 1
    assert min(seconds) > 40 and max(seconds) < 160  # six standard deviations: the ids of `made` are random


def test_a_spread_counts_from_the_time_of_the_add() -> None:
    def times(**when: float) -> tuple[int, int]:
        job = new_job(POLICIES, Add("t", id="a", **when), "a", "t")  # type: ignore[arg-type]  # the names fit
        return job.delay_ms, job.due_ms

    part = spread_ms(Add("t", id="a", spread=3_600))
    assert times() == times(spread=0) == (0, 0)
    assert times(spread=3_600) == (part, 0)
    assert times(spread=3_600, delay=5) == (5_000 + part, 0)
    assert times(spread=3_600, at=2e9) == (0, 2_000_000_000_000 + part)


def test_the_jobs_of_a_virtual_topic_share_the_moment_of_the_id_that_was_given() -> None:
    command = Add("both", id="a", spread=3_600)
    copies = [new_job(POLICIES, command, f"a@{topic}", topic) for topic in ("t", "u")]
    assert {copy.delay_ms for copy in copies} == {spread_ms(command)}
