"""buckets.pool.standing, explain.lua: where a job stands, and what keeps it there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from buckets.clock import HeldClock
from buckets.job import State
from buckets.pool.pool import Pool
from buckets.pool.standing import MOST_BEFORE, Standing, standing
from buckets.redis.client import Redis
from buckets.topics.topics import Topics
from tests.buckets import lives
from tests.buckets.jobs import add, get, pop_one
from tests.kit.waiting import tick_all

NOTHING = dict.fromkeys(("timer", "is_listed", "behind", "paused_us", "before", "above", "newer"))


async def where(pool: Pool, job_id: str = "a", within: str = "") -> Standing:
    return await standing(pool, job_id, within)


def facts(found: Standing) -> dict[str, object]:
    """What the state of a job asked for."""
    return {name: value for name in NOTHING if (value := getattr(found, name)) is not None}


@pytest.mark.parametrize(
    "bring",
    [lives.never_popped_delayed, lives.never_popped_ready, lives.reserved, lives.dead, lives.finished, lives.deleted],
)
async def test_the_job_is_told_without_its_body(pool: Pool, clock: HeldClock, bring: lives.Bring) -> None:
    await bring(pool, clock)
    job, found = await get(pool, "a"), (await where(pool)).job
    assert found is not None
    assert found == replace(job, raw=job.raw[: job.kind.body_at])
    assert (found.body, found.created, found.next) == (b"", job.created, job.next)


async def test_the_time_is_that_of_the_scripts(pool: Pool, clock: HeldClock) -> None:
    assert (await where(pool)).now_us == clock.now_us


async def test_a_body_of_any_size_is_left_out(pool: Pool) -> None:
    await add(pool, "a", body=b'"' + b"x" * 200_000 + b'"', headers=b'{"a":"' + b"h" * 120 + b'"}')
    found = (await where(pool)).job
    assert found is not None and len(found.raw) < 300
    assert found.optional == (await get(pool, "a")).optional


async def test_a_delayed_job_waits_for_the_timer_of_its_bucket(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", delay_ms=1000)
    assert facts(await where(pool)) == {"timer": "", "is_listed": True, "paused_us": -1}
    await redis.read("SET", pool.keys[0].lock((await get(pool, "a")).bucket), "token")
    clock.advance(1000)
    assert facts(await where(pool)) == {"timer": "token", "is_listed": True, "behind": 1, "paused_us": -1}


async def test_what_is_due_before_it_is_counted(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", delay_ms=1000)
    bucket = (await get(pool, "a")).bucket
    for number in range(40):
        await add(pool, f"b{number}", delay_ms=500 if number < 24 else 2000)
    clock.advance(3000)
    before = [await get(pool, f"b{number}") for number in range(24)]
    assert (await where(pool)).behind == 1 + sum(job.bucket == bucket for job in before) > 1


async def test_a_job_that_its_bucket_lacks_is_told(redis: Redis, pool: Pool) -> None:
    await add(pool, "a", delay_ms=1000)
    await redis.read("DEL", pool.keys[0].bucket((await get(pool, "a")).bucket))
    assert (await where(pool)).is_listed is False


async def test_a_ready_job_stands_behind_those_of_its_priority_and_of_higher_ones(pool: Pool) -> None:
    for number in range(3):
        await add(pool, f"before{number}")
        await add(pool, f"above{number}", priority=5 + number)
        await add(pool, f"below{number}", priority=3)
        await add(pool, f"other{number}", topic="u")
    await add(pool, "a")
    await add(pool, "behind")
    assert facts(await where(pool)) == {"paused_us": -1, "before": 3, "above": 3}


async def test_only_the_first_entries_of_a_long_list_are_counted(pool: Pool, redis: Redis) -> None:
    stale = [f"7:s{number}" for number in range(MOST_BEFORE)]
    await redis.read("RPUSH", pool.keys[0].ready(4, "t"), *stale[1:])
    await add(pool, "a")
    assert (await where(pool)).before == MOST_BEFORE - 1
    await redis.read("LPUSH", pool.keys[0].ready(4, "t"), stale[0])
    assert (await where(pool)).before == -1


async def test_a_pause_is_told_with_its_end(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a")
    topics = Topics(pool)
    await topics.pause("t", 5000)
    assert (await where(pool)).paused_us == 5_000_000
    clock.advance(5000)
    assert (await where(pool)).paused_us == -1
    await topics.pause("t")
    assert (await where(pool)).paused_us == -2


async def test_a_reserved_job_is_told_with_the_timer_of_its_lease(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", ttr_ms=1000)
    await pop_one(pool)
    assert facts(await where(pool)) == {"timer": "", "is_listed": True}
    clock.advance(1000)
    assert facts(await where(pool)) == {"timer": "", "is_listed": True, "behind": 1}


async def test_dead_letters_that_died_later_are_counted(pool: Pool, clock: HeldClock) -> None:
    for job_id in ("a", "b", "c"):
        await add(pool, job_id, ttl_ms=1)
        clock.advance(1)
        await tick_all(pool)
    assert [(await where(pool, job_id)).newer for job_id in ("a", "b", "c")] == [2, 1, 0]


async def test_a_job_that_nobody_knows_is_not_there(pool: Pool) -> None:
    found = await where(pool)
    assert (found.job, found.is_unreadable, found.is_aside, facts(found)) == (None, False, False, {})


async def test_a_tombstone_whose_time_is_over_is_not_there(pool: Pool, clock: HeldClock) -> None:
    await lives.finished(pool, clock)
    clock.advance(59_999)
    assert (await where(pool)).job is not None
    clock.advance(1)
    assert (await where(pool)).job is None


async def test_a_record_that_cannot_be_read_is_told_and_left_alone(redis: Redis, pool: Pool) -> None:
    await redis.read("SET", pool.keys[0].job("a"), "?")
    await redis.read("HSET", pool.keys[0].aside, "b", "?")
    assert (await where(pool)).is_unreadable
    assert (await where(pool, "b")).is_aside
    assert await redis.read("GET", pool.keys[0].job("a")) == b"?"
    for job_id in ("a", "b"):  # nobody knows whether the caller reaches it
        found = await where(pool, job_id, "t")
        assert not found.is_unreadable and not found.is_aside


async def test_a_job_of_a_topic_that_the_caller_does_not_reach_is_not_there(pool: Pool) -> None:
    await add(pool, "a")
    assert (await where(pool, within="u v*")).job is None
    assert facts(await where(pool, within="u v*")) == {}
    found = (await where(pool, within="u t*")).job
    assert found is not None and found.state is State.READY


async def test_keys_of_other_programs_count_as_empty(redis: Redis, pool: Pool) -> None:
    keys = pool.keys[0]
    await add(pool, "a")
    await add(pool, "d", delay_ms=1000)
    await redis.read("SET", keys.aside, "x")
    for key in (keys.ready(4, "t"), keys.ready(5, "t"), keys.bucket((await get(pool, "d")).bucket)):
        await redis.read("DEL", key)
        await redis.read("HSET", key, "a", "b")
    await redis.read("HSET", keys.paused("t"), "a", "b")
    await redis.read("HSET", keys.lock((await get(pool, "d")).bucket), "a", "b")
    assert facts(await where(pool)) == {"paused_us": -1, "before": -1, "above": 0}
    assert facts(await where(pool, "d")) == {"timer": "", "is_listed": False, "paused_us": -1}


async def test_it_says_whether_the_shard_keeps_events(redis: Redis, pool: Pool) -> None:
    assert not (await where(pool)).is_told
    await redis.read("HSET", pool.keys[0].meta, "events", "1000")
    assert (await where(pool)).is_told
