"""The use cases of schedules, on a pool whose clock the test controls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from buckets import Occurrences, Pool
from buckets.clock import HeldClock
from buckets.errors import AlreadyExists, NotFound
from jobqueue.engine.new_jobs import Policies
from jobqueue.engine.schedules.scheduling import Planning, SchedulesPlace, ScheduleView, Scheduling
from jobqueue.errors import BadField
from jobqueue.schema import checks, params
from jobqueue.settings import Settings
from tests.buckets.jobs import delete, popped_ids
from tests.jobqueue.engine.schedules.test_definition import command

SETTINGS = Settings(virtual_topics={"paid": ("invoice", "t" * 60)})


@pytest.fixture
def scheduling(pool: Pool) -> Scheduling:
    def pool_for(commands: Sequence[params.Schedule]) -> Pool:
        return pool

    return Scheduling(pool, pool_for, lambda: Policies(SETTINGS))


async def occur(scheduling: Scheduling, clock: HeldClock, seconds: int) -> None:
    """Let time pass, and make what is due of the schedule n, as a timer would have it."""
    clock.advance(seconds * 1000)
    _, schedule = await scheduling.schedules.see("n")
    bucket = schedule.bucket if schedule else 0
    await Occurrences(scheduling.schedules, Planning(lambda: Policies(SETTINGS)).plan).make(0, bucket, ["n"])


async def listed(scheduling: Scheduling, within: str = "", **fields: Any) -> list[ScheduleView]:
    """All pages."""
    found: list[ScheduleView] = []
    cursor: str | None = None
    while True:
        some, cursor = await scheduling.page(params.Schedules(cursor=cursor, **fields), within)
        found += some
        if cursor is None:
            return found


async def test_a_schedule_is_created_then_existing_then_replaced(scheduling: Scheduling, clock: HeldClock) -> None:
    result, first = await scheduling.schedule(command(every=60))
    assert (result, first) == ("created", clock.now_us // 1000 + 60_000)
    clock.advance(30_000)
    assert await scheduling.schedule(command(every=60)) == ("existing", first)
    assert await scheduling.schedule(command(every=60, tries=3)) == ("replaced", first + 30_000)


async def test_the_times_of_an_interval_count_from_its_start(scheduling: Scheduling, clock: HeldClock) -> None:
    now_s = clock.now_us // 1_000_000
    assert (await scheduling.schedule(command(every=60, start=now_s + 90)))[1] == (now_s + 150) * 1000
    assert (await scheduling.schedule(command(every=60, start=now_s - 90)))[1] == (now_s + 30) * 1000
    assert (await scheduling.schedule(command(every=60, start=now_s - 120)))[1] == (now_s + 60) * 1000


async def test_a_paused_schedule_has_no_times_until_it_is_defined_to_go_on(
    scheduling: Scheduling, clock: HeldClock, pool: Pool
) -> None:
    assert await scheduling.schedule(command(every=60, paused=True)) == ("created", 0)
    await occur(scheduling, clock, 600)
    assert await popped_ids(pool) == []
    (view,) = await listed(scheduling)
    assert view.definition.paused and view.times == []
    result, first = await scheduling.schedule(command(every=60))
    assert (result, first) == ("replaced", clock.now_us // 1000 + 60_000)


async def test_what_an_earlier_definition_has_made_is_not_made_again(
    scheduling: Scheduling, clock: HeldClock, pool: Pool
) -> None:
    start = clock.now_us // 1_000_000
    _, first = await scheduling.schedule(command(every=60, start=start))
    await occur(scheduling, clock, 60)
    await scheduling.schedule(command(every=60, start=start, tries=3))
    await scheduling.unschedule("n")
    await scheduling.schedule(command(every=60, start=start))
    await occur(scheduling, clock, 0)
    assert await popped_ids(pool) == [f"n@{first}"]


async def test_a_schedule_that_is_removed_keeps_its_occurrences_and_says_how_many_are_live(
    scheduling: Scheduling, clock: HeldClock, pool: Pool
) -> None:
    _, first = await scheduling.schedule(command(every=60, catch_up="all"))
    await occur(scheduling, clock, 180)
    await delete(pool, f"n@{first}")
    assert await scheduling.unschedule("n") == 2
    await occur(scheduling, clock, 600)
    assert await popped_ids(pool) == [f"n@{first + 60_000}", f"n@{first + 120_000}"]
    with pytest.raises(NotFound):
        await scheduling.unschedule("n")


async def test_a_listing_has_the_next_five_times_and_the_last_one(scheduling: Scheduling, clock: HeldClock) -> None:
    _, first = await scheduling.schedule(command(every=60))
    (view,) = await listed(scheduling)
    assert view.times == [first + number * 60_000 for number in range(5)]
    assert view.schedule.last == 0
    await occur(scheduling, clock, 60)
    (view,) = await listed(scheduling)
    assert (view.times[0], view.schedule.last) == (first + 60_000, first)


async def test_a_listing_has_all_schedules_in_its_pages_or_those_that_match(scheduling: Scheduling) -> None:
    names = {f"report-{number}" for number in range(300)}
    for name in (*names, "nightly"):
        await scheduling.schedule(command(every=60, name=name))
    assert {view.schedule.name for view in await listed(scheduling)} == {*names, "nightly"}
    assert [view.schedule.name for view in await listed(scheduling, pattern="night*")] == ["nightly"]
    assert [view.schedule.name for view in await listed(scheduling, pattern="report-?1?")] != []
    assert await listed(scheduling, pattern="report") == []


PLACES = [SchedulesPlace(1, 0), SchedulesPlace(-1, 0), SchedulesPlace(0, 1 << 64)]


@pytest.mark.parametrize("cursor", ["nonsense", *map(checks.write, PLACES)])
async def test_a_cursor_that_no_listing_gave_is_refused(scheduling: Scheduling, cursor: str) -> None:
    with pytest.raises(BadField) as refused:
        await scheduling.page(params.Schedules(cursor=cursor))
    assert refused.value.field == "cursor"


async def test_the_ids_of_occurrences_must_not_be_too_long(scheduling: Scheduling) -> None:
    await scheduling.schedule(command(every=60, name="x" * 200))
    with pytest.raises(BadField, match=r"name is too long: .* would have 275 characters .* at most 255") as refused:
        await scheduling.schedule(command(every=60, name="x" * 200, topic="paid"))
    assert refused.value.field == "name"
    await scheduling.schedule(command(every=60, name="x" * 180, topic="paid"))


async def test_who_reaches_some_topics_neither_sees_nor_touches_schedules_of_others(scheduling: Scheduling) -> None:
    await scheduling.schedule(command(every=60, name="mine", topic="mail-a"))
    await scheduling.schedule(command(every=60, name="other", topic="bills"))
    within = "mail-*"
    assert [view.schedule.name for view in await listed(scheduling, within)] == ["mine"]
    with pytest.raises(NotFound):
        await scheduling.unschedule("other", within)
    with pytest.raises(AlreadyExists):
        await scheduling.schedule(command(every=60, name="other", topic="mail-b"), within)
    assert await scheduling.unschedule("mine", within) == 0
    assert [view.schedule.name for view in await listed(scheduling)] == ["other"]
