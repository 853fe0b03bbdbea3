"""What is planned for a schedule whose time has come: the occurrences to make, and the time behind them."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from typing import Any

import pytest

from buckets import Plan, Schedule
from jobqueue.engine.new_jobs import Policies
from jobqueue.engine.schedules.definition import defined, encoded
from jobqueue.engine.schedules.scheduling import MOST_CAUGHT_UP, Planning
from jobqueue.settings import Settings, TopicSettings
from tests.jobqueue.engine.schedules.test_definition import command

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
BEGUN = int(datetime(2026, 3, 2, tzinfo=UTC).timestamp()) * 1000  # a Monday


async def planned(next_ms: int, now: int, settings: Settings | None = None, **fields: Any) -> Plan:
    """What is to become of a schedule of every minute since BEGUN, unless `fields` say otherwise."""
    definition = defined(command(**{"every": 60, "catch_up": "last"} | fields))
    schedule = Schedule("n", 0, 1, BEGUN, next_ms, 0, encoded(definition))
    return await Planning(lambda: Policies(settings or Settings())).plan(schedule, now)


def minutes(plan: Plan) -> list[float]:
    """The times of a plan, in minutes since BEGUN."""
    return [(time.ms - BEGUN) / MINUTE_MS for time in plan.times]


async def test_in_time_there_is_one_occurrence_due_at_its_time_and_then_the_next(subtests: pytest.Subtests) -> None:
    for catch_up, late_ms in itertools.product(("none", "last", "all"), (0, 1, 999, MINUTE_MS - 1)):
        with subtests.test(catch_up=catch_up, late_ms=late_ms):
            plan = await planned(BEGUN + MINUTE_MS, BEGUN + MINUTE_MS + late_ms, catch_up=catch_up)
            assert [tuple(time) for time in plan.times] == [(BEGUN + MINUTE_MS, BEGUN + MINUTE_MS)]
            assert (plan.next, plan.missed, plan.skips) == (BEGUN + 2 * MINUTE_MS, 0, False)


@pytest.mark.parametrize(
    ("catch_up", "made"), [("none", [10]), ("last", [10]), ("all", [1, 2, 3, 4, 5, 6, 7, 8, 9, 10])]
)
async def test_after_a_while_the_last_time_is_made_or_all_of_them(catch_up: str, made: list[int]) -> None:
    plan = await planned(BEGUN + MINUTE_MS, BEGUN + 10 * MINUTE_MS + 500, catch_up=catch_up)
    assert minutes(plan) == made
    assert plan.next == BEGUN + 11 * MINUTE_MS


async def test_what_is_over_a_minute_late_is_left_out_where_nothing_is_caught_up() -> None:
    late = await planned(BEGUN + HOUR_MS, BEGUN + HOUR_MS + MINUTE_MS + 1, every=3600, catch_up="none")
    assert (minutes(late), late.next, late.missed) == ([], BEGUN + 2 * HOUR_MS, BEGUN + HOUR_MS)
    in_time = await planned(BEGUN + HOUR_MS, BEGUN + HOUR_MS + MINUTE_MS, every=3600, catch_up="none")
    assert (minutes(in_time), in_time.missed) == ([60], 0)


async def test_the_first_time_that_nobody_made_an_occurrence_at_is_told() -> None:
    assert (await planned(BEGUN + MINUTE_MS, BEGUN + 10 * MINUTE_MS, catch_up="last")).missed == BEGUN + MINUTE_MS
    assert (await planned(BEGUN + MINUTE_MS, BEGUN + 10 * MINUTE_MS, catch_up="all")).missed == 0


async def test_of_very_many_the_last_thousand_are_caught_up() -> None:
    plan = await planned(BEGUN + MINUTE_MS, BEGUN + 30 * DAY_MS, catch_up="all")
    assert MOST_CAUGHT_UP == 1000
    assert minutes(plan) == list(range(30 * 24 * 60 - 999, 30 * 24 * 60 + 1))
    assert plan.missed == BEGUN + MINUTE_MS


async def test_a_calendar_is_caught_up_likewise() -> None:
    first = BEGUN + 9 * HOUR_MS
    now = BEGUN + 8 * DAY_MS  # the second Tuesday, before 09:00
    weekdays: dict[str, Any] = {"every": None, "cron": "0 9 * * MON-FRI", "catch_up": "all"}
    plan = await planned(first, now, **weekdays)
    assert [(time.ms - first) // DAY_MS for time in plan.times] == [0, 1, 2, 3, 4, 7]
    assert plan.next == first + 8 * DAY_MS


async def test_the_time_zone_holds_through_a_change_of_the_clock() -> None:
    """In Berlin, 2026-03-29 begins an hour east of UTC and goes on two hours east of it."""
    nine = int(datetime(2026, 3, 28, 8, tzinfo=UTC).timestamp()) * 1000
    plan = await planned(nine, nine, every=None, cron="0 9 * * *", zone="Europe/Berlin")
    assert plan.next == nine + DAY_MS - HOUR_MS


async def test_jitter_makes_an_occurrence_due_later_by_a_part_that_is_its_own() -> None:
    def delays(plan: Plan) -> list[int]:
        return [time.due - time.ms for time in plan.times]

    some = await planned(BEGUN + MINUTE_MS, BEGUN + 500 * MINUTE_MS, jitter=10, catch_up="all")
    assert all(0 <= each <= 10_000 for each in delays(some))
    assert min(delays(some)) < 500 and max(delays(some)) > 9_500
    again = await planned(BEGUN + MINUTE_MS, BEGUN + 500 * MINUTE_MS + 7, jitter=10, catch_up="all")
    assert delays(again) == delays(some)


async def test_an_occurrence_of_a_virtual_topic_is_a_job_in_each_of_its_topics() -> None:
    settings = Settings(virtual_topics={"paid": ("invoice", "mail")}, topics={"mail": TopicSettings(tries=2)})
    plan = await planned(BEGUN + MINUTE_MS, BEGUN + MINUTE_MS, settings, topic="paid")
    assert [(suffix, job.topic, job.tries) for suffix, job in plan.copies] == [
        ("@invoice", "invoice", 16),
        ("@mail", "mail", 2),
    ]
    assert plan.topic == "paid"


async def test_an_occurrence_follows_the_policies_of_the_time_at_which_it_is_made() -> None:
    for tries in (3, 5):
        settings = Settings(topics={"t": TopicSettings(tries=tries)})
        plan = await planned(BEGUN + MINUTE_MS, BEGUN + MINUTE_MS, settings)
        assert [(suffix, job.tries) for suffix, job in plan.copies] == [("", tries)]
        plan = await planned(BEGUN + MINUTE_MS, BEGUN + MINUTE_MS, settings, tries=4)
        assert [job.tries for _, job in plan.copies] == [4]


async def test_a_schedule_may_skip_while_the_last_occurrence_is_live() -> None:
    assert (await planned(BEGUN + MINUTE_MS, BEGUN + MINUTE_MS, overlap="skip")).skips


async def test_a_definition_of_a_newer_version_is_an_error_of_its_own() -> None:
    for definition in (b"[]", b'{"topic": "t", "body": 1, "cron": "* * * * *", "zone": "Mars/Olympus"}'):
        schedule = Schedule("n", 0, 1, BEGUN, BEGUN, 0, definition)
        with pytest.raises(ValueError, match=r"Mars|array"):
            await Planning(lambda: Policies(Settings())).plan(schedule, BEGUN)
