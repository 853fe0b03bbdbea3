"""buckets.schedules.schedules: a schedule is defined, replaced and removed by its name, and its record is the truth."""

from __future__ import annotations

from typing import Any

import pytest

from buckets.errors import NotFound
from buckets.layout import SCHEDULE_HEADER
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from buckets.schedules.record import Schedule, unpack_schedule
from buckets.schedules.schedules import Seen
from tests.buckets.books import check_books
from tests.buckets.jobs import delete, finish, pop_one, state
from tests.buckets.schedules.scheduled import Scheduled, definition_of


async def test_a_new_schedule_has_a_record_and_an_entry_at_its_next_time(redis: Redis, scheduled: Scheduled) -> None:
    assert await scheduled.define("s", 5_000) == "created"
    now = scheduled.clock.now_us // 1000
    record = await scheduled.record("s")
    assert (record.start, record.next, record.last) == (now, now + 5_000, 0)
    assert (record.revision, record.definition) == (scheduled.clock.now_us, definition_of(5_000))
    assert await scheduled.entry("s") == record.next
    await check_books(redis, scheduled.pool)


async def test_the_same_definition_again_keeps_its_times(scheduled: Scheduled) -> None:
    await scheduled.define("s", 5_000)
    before = await scheduled.record("s")
    scheduled.clock.advance(1_234)
    assert await scheduled.define("s", 5_000) == "existing"
    assert await scheduled.record("s") == before


async def test_another_definition_counts_from_now_and_knows_what_was_made(redis: Redis, scheduled: Scheduled) -> None:
    await scheduled.define("s", 5_000)
    await scheduled.advance(5_000)
    before = await scheduled.record("s")
    scheduled.clock.advance(1_000)
    assert await scheduled.define("s", 7_000) == "replaced"
    after, now = await scheduled.record("s"), scheduled.clock.now_us // 1000
    assert (after.start, after.next, after.last) == (now, now + 7_000, before.next - 5_000)
    assert after.revision > before.revision and after.bucket == before.bucket
    await check_books(redis, scheduled.pool)


async def test_a_revision_is_higher_than_the_one_before_though_the_clock_went_back(scheduled: Scheduled) -> None:
    await scheduled.define("s", 5_000)
    before = (await scheduled.record("s")).revision
    scheduled.clock.advance(-3_600_000)
    await scheduled.define("s", 6_000)
    assert (await scheduled.record("s")).revision == before + 1


async def test_whoever_has_seen_an_older_definition_changes_nothing(scheduled: Scheduled) -> None:
    schedules = scheduled.schedules
    unseen = await schedules.see("s")
    assert await schedules.define("s", unseen, b"first", 1, 0) == "created"
    first = await schedules.see("s")
    assert await schedules.define("s", unseen, b"late", 1, 0) == "changed"
    assert await schedules.define("s", first, b"second", 1, 0) == "replaced"
    assert await schedules.define("s", first, b"late", 1, 0) == "changed"
    assert first.schedule and await schedules.undefine(first.schedule) is None
    assert (await scheduled.record("s")).definition == b"second"


async def test_a_lost_answer_is_asked_for_again(scheduled: Scheduled) -> None:
    """The script runs twice: what the first run did is `existing` for the second."""
    unseen = await scheduled.schedules.see("s")
    assert await scheduled.schedules.define("s", unseen, b"d", 1, 0) == "created"
    assert await scheduled.schedules.define("s", unseen, b"d", 1, 0) == "existing"


async def test_a_paused_schedule_has_a_record_and_no_entry(redis: Redis, scheduled: Scheduled) -> None:
    await scheduled.define("s", 1_000)
    assert await scheduled.define("s", 1_000, paused=True) == "replaced"
    assert (await scheduled.record("s")).next == 0 and await scheduled.entry("s") is None
    await scheduled.advance(10_000)
    assert await scheduled.times("s") == []
    await check_books(redis, scheduled.pool)
    assert await scheduled.define("s", 1_000) == "replaced"
    await scheduled.advance(1_000)
    assert await scheduled.times("s") == [1_000]


async def test_what_was_made_stays_when_a_schedule_goes_and_the_answer_says_how_many_live(
    redis: Redis, scheduled: Scheduled
) -> None:
    await scheduled.define("s", 1_000)
    await scheduled.advance(1_000, 5)
    first, second, third, fourth, _ = [f"s@{(await scheduled.record('s')).start + n * 1_000}" for n in range(1, 6)]
    await finish(scheduled.pool, (await pop_one(scheduled.pool)).id)
    await delete(scheduled.pool, second)
    await pop_one(scheduled.pool)
    assert await scheduled.schedules.undefine(await scheduled.record("s")) == 3
    found = [await state(scheduled.pool, each) for each in (first, second, third, fourth)]
    assert found == ["finished", "deleted", "reserved", "ready"]
    await scheduled.advance(10_000)
    assert (await scheduled.schedules.see("s")).schedule is None
    assert await redis.read("KEYS", "*}:o:*") == []
    await check_books(redis, scheduled.pool)


async def test_the_live_ones_of_many_occurrences_are_counted_in_steps(scheduled: Scheduled) -> None:
    await scheduled.define("s", 1_000, catch_up="all")
    await scheduled.advance(700_000)
    assert len(await scheduled.times("s")) == 700
    assert await scheduled.schedules.undefine(await scheduled.record("s")) == 700


async def test_the_occurrences_of_a_new_schedule_of_the_name_are_not_those_of_the_old_one(scheduled: Scheduled) -> None:
    await scheduled.define("s", 1_000, catch_up="all")
    await scheduled.advance(500_000)
    call = scheduled.pool.call

    async def meanwhile(script: str, shard: int, rest: Any = (), **arguments: Any) -> Any:
        if script == "forget_occurrences":
            scheduled.pool.call = call  # type: ignore[method-assign]
            await scheduled.define("s", 1_000)
            await scheduled.advance(1_000)
        return await call(script, shard, rest, **arguments)

    scheduled.pool.call = meanwhile  # type: ignore[method-assign]
    assert await scheduled.schedules.undefine(await scheduled.record("s")) == 500
    assert await scheduled.times("s") == [1_000]


async def test_a_schedule_that_is_not_there_cannot_be_removed(scheduled: Scheduled) -> None:
    with pytest.raises(NotFound):
        await scheduled.schedules.undefine(Schedule("s", 0, 1, 1, 1, 0, b""))


async def test_the_schedules_of_a_shard_are_listed_by_pattern(scheduled: Scheduled) -> None:
    for name in ("mail:a", "mail:b", "other"):
        await scheduled.define(name)
    found, cursor = await scheduled.schedules.page(0, 0, "mail:*")
    assert ({each.name for each in found}, cursor) == ({"mail:a", "mail:b"}, 0)


async def test_a_record_that_cannot_be_read_is_set_aside_and_the_name_is_free_again(
    redis: Redis, scheduled: Scheduled
) -> None:
    await scheduled.define("s")
    key = scheduled.pool.keys[0].schedules
    await redis.read("HSET", key, "s", "junk")
    assert await scheduled.schedules.see("s") == Seen(scheduled.clock.now_us // 1000, None)
    assert (await scheduled.schedules.page(0, 0, "*"))[0] == []
    await scheduled.advance(1_000)
    assert await redis.read("HGET", scheduled.pool.keys[0].aside, "~s") == b"junk"
    await redis.read("DEL", scheduled.pool.keys[0].aside)
    await check_books(redis, scheduled.pool)
    assert await scheduled.define("s") == "created"


async def test_the_key_of_another_program_in_place_of_the_schedules_holds_up_nothing(
    redis: Redis, scheduled: Scheduled, pool: Pool
) -> None:
    await scheduled.define("s")
    assert await scheduled.schedules.count() == 1
    await redis.read("SET", pool.keys[0].schedules, "of another program")
    assert await scheduled.schedules.count() == 0
    await scheduled.advance(1_000)
    assert await redis.read("HKEYS", pool.keys[0].aside) == [pool.keys[0].schedules.encode()]
    assert await scheduled.define("s") == "created"


def test_a_record_of_another_version_or_with_a_header_that_is_too_long_is_refused() -> None:
    head = bytes((1, SCHEDULE_HEADER)) + bytes(SCHEDULE_HEADER - 2)
    assert unpack_schedule("s", head + b"d").definition == b"d"
    longer = bytes((1, SCHEDULE_HEADER + 2)) + head[2:] + b"xxd"  # of a later version, which appended a field
    assert unpack_schedule("s", longer).definition == b"d"
    for raw in (b"", head[:-1], b"\x02" + head[1:], bytes((1, 200)) + head[2:], bytes((1, 3)) + head[2:]):
        with pytest.raises(ValueError, match="not the record"):
            unpack_schedule("s", raw)
