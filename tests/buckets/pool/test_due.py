"""buckets.pool.pool, due.lua: what time does to jobs."""

from __future__ import annotations

import re

import pytest

from buckets.clock import HeldClock
from buckets.job import Cause, NewJob, State
from buckets.pool.pool import PAGE, Moved, Pool
from buckets.redis.client import Redis
from buckets.topics.topics import Topics
from tests.buckets.books import check_books
from tests.buckets.jobs import add, finish, get, pop, pop_one, popped_ids, state
from tests.kit.waiting import tick_all


async def test_a_job_that_its_worker_does_not_finish_comes_back_at_the_end_of_its_ttr(
    pool: Pool, clock: HeldClock
) -> None:
    await add(pool, "a", ttr_ms=1_000)
    await pop_one(pool)
    clock.now_us += 999_999
    assert await tick_all(pool) == 0
    clock.now_us += 1
    assert await tick_all(pool) == 1
    job = await pop_one(pool)
    assert (job.attempts, job.deliveries) == (2, 2)
    assert (await Topics(pool).stats("t")).totals == {"created": 1, "delivered": 2, "redelivered": 1}


async def test_the_end_of_a_lease_within_a_millisecond_is_rounded_up(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", ttr_ms=1_000)
    clock.now_us += 1
    await pop_one(pool)
    clock.now_us += 1_000_000
    assert await tick_all(pool) == 0


async def test_a_job_that_came_back_stands_behind_those_that_waited(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", ttr_ms=1_000)
    await pop_one(pool)
    await add(pool, "b")
    clock.advance(1_000)
    await tick_all(pool)
    assert await popped_ids(pool) == ["b", "a"]


@pytest.mark.parametrize("tries", [1, 2, 5])
async def test_a_job_is_dead_when_its_tries_are_over(redis: Redis, pool: Pool, clock: HeldClock, tries: int) -> None:
    await add(pool, "a", tries=tries, ttr_ms=1_000)
    for _ in range(tries):
        assert await popped_ids(pool) == ["a"]
        clock.advance(1_000)
        await tick_all(pool)
    assert await popped_ids(pool) == []
    job = await get(pool, "a")
    assert (job.state, job.cause, job.attempts, job.body) == (State.DEAD, Cause.TRIES, tries, b'"body"')
    assert job.next == clock.now_us // 1000
    stats = await Topics(pool).stats("t")
    assert (stats.counts["dead"], stats.totals["died_tries"], stats.totals["delivered"]) == (1, 1, tries)
    clock.advance(86_400_000)
    assert await tick_all(pool) == 0
    await check_books(redis, pool)


async def test_zero_tries_are_no_limit(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", tries=0, ttr_ms=1_000)
    for attempt in range(1, 30):
        assert (await pop_one(pool)).attempts == attempt
        clock.advance(1_000)
        await tick_all(pool)


async def test_the_ladder_is_climbed_step_by_step_and_its_last_step_repeats(
    redis: Redis, pool: Pool, clock: HeldClock
) -> None:
    ladder = (15_000, 15_000, 0, 180_000, 7)
    await add(pool, "a", tries=0, ttr_ms=1_000, backoff_ms=ladder)
    for step, delay in enumerate([*ladder, 7, 7, 7]):
        assert (await pop_one(pool)).kind.step == step
        clock.advance(1_000)
        await tick_all(pool)
        job = await get(pool, "a")
        if delay:
            assert (job.state, job.next) == (State.DELAYED, clock.now_us // 1000 + delay)
            clock.advance(delay - 1)
            assert await tick_all(pool) == 0
            clock.advance(1)
            assert await tick_all(pool) == 1
        assert await state(pool, "a") == "ready"
        await check_books(redis, pool)


async def test_the_ladder_ends_with_the_tries(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", tries=2, ttr_ms=1_000, backoff_ms=(5_000,))
    for _ in range(2):
        await pop_one(pool)
        clock.advance(1_000)
        await tick_all(pool)
        clock.advance(5_000)
        await tick_all(pool)
    assert (await get(pool, "a")).cause is Cause.TRIES


async def test_a_step_counts_from_the_end_of_the_lease_and_is_not_early(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", ttr_ms=1_000, backoff_ms=(5_000,))
    await pop_one(pool)
    clock.now_us += 1_000_001
    await tick_all(pool)
    clock.now_us += 5_000_000
    assert await tick_all(pool) == 0
    clock.now_us += 999
    assert await tick_all(pool) == 1


async def test_the_due_time_that_was_asked_for_stays_through_all_deliveries(pool: Pool, clock: HeldClock) -> None:
    due = (await add(pool, "a", ttr_ms=1_000, delay_ms=3_000, backoff_ms=(5_000,))).due
    clock.advance(3_000)
    await tick_all(pool)
    for _ in range(3):
        assert (await pop_one(pool)).due == due
        clock.advance(1_000)
        await tick_all(pool)
        clock.advance(5_000)
        await tick_all(pool)
    assert (await get(pool, "a")).due == due


async def test_a_ready_job_dies_at_the_end_of_its_ttl_though_nobody_pops(
    redis: Redis, pool: Pool, clock: HeldClock
) -> None:
    await add(pool, "a", delay_ms=5_000, ttl_ms=1_000)
    clock.advance(5_000)
    await tick_all(pool)
    clock.advance(999)
    assert await tick_all(pool) == 0
    clock.advance(1)
    assert await tick_all(pool) == 1
    job = await get(pool, "a")
    assert (job.state, job.cause, job.body) == (State.DEAD, Cause.TTL, b'"body"')
    assert (await Topics(pool).stats("t")).totals == {"created": 1, "died_ttl": 1}
    await check_books(redis, pool)


async def test_a_pop_does_not_hand_out_what_its_ttl_has_ended_before_the_timer_came(
    redis: Redis, pool: Pool, clock: HeldClock
) -> None:
    await add(pool, "a", ttl_ms=1_000)
    await add(pool, "b")
    clock.advance(1_000)
    assert await popped_ids(pool) == ["b"]
    await check_books(redis, pool)
    await tick_all(pool)
    assert await state(pool, "a") == "dead"
    await check_books(redis, pool)


async def test_a_job_is_still_handed_out_in_the_last_millisecond_of_its_ttl(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", ttl_ms=1_000)
    clock.now_us += 999_999
    await tick_all(pool)
    assert await popped_ids(pool) == ["a"]


async def test_a_delayed_job_that_no_timer_moved_until_its_ttl_was_over_dies(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", delay_ms=5_000, ttl_ms=1_000)
    clock.advance(6_000)
    await tick_all(pool)
    assert (await get(pool, "a")).cause is Cause.TTL
    assert await popped_ids(pool) == []


async def test_a_lease_that_runs_past_the_ttl_may_finish(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", ttl_ms=1_000, ttr_ms=5_000)
    lease = (await pop_one(pool)).lease
    clock.advance(4_999)
    await tick_all(pool)
    assert await state(pool, "a") == "reserved"
    assert await finish(pool, "a", lease) == "finished"
    await check_books(redis, pool)


async def test_a_lease_that_ends_after_the_ttl_ends_the_job(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", ttl_ms=1_000, ttr_ms=5_000, backoff_ms=(3_000,))
    await pop_one(pool)
    clock.advance(5_000)
    await tick_all(pool)
    job = await get(pool, "a")
    assert (job.state, job.cause) == (State.DEAD, Cause.TTL)


async def test_a_ttl_counts_from_the_due_time_not_from_the_add(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", delay_ms=60_000, ttl_ms=1_000)
    clock.advance(60_000)
    await tick_all(pool)
    assert await popped_ids(pool) == ["a"]


async def test_a_job_with_a_ttl_that_came_back_dies_when_it_is_over(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", ttl_ms=3_000, ttr_ms=1_000)
    await pop_one(pool)
    clock.advance(1_000)
    await tick_all(pool)
    assert await state(pool, "a") == "ready"
    await check_books(redis, pool)
    clock.advance(2_000)
    await tick_all(pool)
    assert (await get(pool, "a")).cause is Cause.TTL
    assert await popped_ids(pool) == []


async def test_the_answer_says_how_long_nothing_is_due(redis: Redis, clock: HeldClock) -> None:
    pool = await Pool.open(redis, "one", buckets=1, clock=clock)
    assert await pool.due(0, 0) == (0, -1, [])
    await add(pool, "a", delay_ms=1_000)
    await add(pool, "b", delay_ms=4_000)
    assert await pool.due(0, 0) == (0, 1_000_000, [])
    clock.now_us += 999_999
    assert await pool.due(0, 0) == (0, 1, [])
    clock.now_us += 1
    assert await pool.due(0, 0) == (1, 3_000_000, [])
    clock.advance(10_000)
    assert await pool.due(0, 0) == (1, -1, [])


async def test_what_is_due_is_moved_a_page_at_a_time(redis: Redis, clock: HeldClock) -> None:
    pool = await Pool.open(redis, "one", buckets=1, clock=clock)
    ids = [f"{n:05}" for n in range(2 * PAGE + 1)]
    await pool.add([NewJob(job_id, "t", b"", delay_ms=1_000) for job_id in ids])
    clock.advance(1_000)
    assert [await pool.due(0, 0) for _ in range(3)] == [(PAGE, 0, []), (PAGE, 0, []), (1, -1, [])]
    assert await popped_ids(pool) + await popped_ids(pool) == ids
    await check_books(redis, pool)


async def test_a_page_of_many_topics_and_priorities_is_moved_at_once(redis: Redis, clock: HeldClock) -> None:
    pool = await Pool.open(redis, "one", buckets=1, clock=clock)
    jobs = [NewJob(str(n), f"t{n % 40}", b"", delay_ms=n % 3 + 1, priority=n % 10) for n in range(PAGE)]
    await pool.add(jobs)
    clock.advance(5)
    assert await pool.due(0, 0) == (PAGE, -1, [])
    await check_books(redis, pool)


async def test_an_entry_of_a_bucket_that_the_record_does_not_bear_out_is_dropped(
    redis: Redis, pool: Pool, clock: HeldClock
) -> None:
    await add(pool, "ready")
    await add(pool, "later", delay_ms=60_000)
    later = await get(pool, "later")
    other = (later.bucket + 1) % pool.buckets
    now = clock.now_us // 1000
    for job_id in ("ready", "nobody", "later"):
        await redis.read("ZADD", pool.keys[0].bucket(other), now - 5, job_id)
    assert await tick_all(pool) == 3
    assert await popped_ids(pool) == ["ready"]
    assert await get(pool, "later") == later
    await finish(pool, "ready")
    await check_books(redis, pool)


async def test_an_entry_with_a_wrong_time_is_put_right_and_does_not_fire_early(
    redis: Redis, pool: Pool, clock: HeldClock
) -> None:
    await add(pool, "a", delay_ms=60_000)
    bucket = pool.keys[0].bucket((await get(pool, "a")).bucket)
    await redis.read("ZADD", bucket, clock.now_us // 1000 - 5, "a")
    assert await tick_all(pool) == 1
    assert await popped_ids(pool) == []
    await check_books(redis, pool)
    clock.advance(60_000)
    await tick_all(pool)
    assert await popped_ids(pool) == ["a"]


async def test_two_timers_on_one_bucket_move_each_job_once(redis: Redis, clock: HeldClock) -> None:
    """The timers' locks save work; correctness does not depend on them."""
    one = await Pool.open(redis, "two", buckets=1, clock=clock)
    two = await Pool.open(redis, "two", clock=clock)
    await one.add([NewJob(str(n), "t", b"", delay_ms=1) for n in range(PAGE + 50)])
    clock.advance(1)
    moved = [await pool.due(0, 0) for pool in (one, two, one, two)]
    assert [number for number, *_ in moved] == [PAGE, 50, 0, 0]
    assert len(await pop(two, count=1000)) == PAGE + 50


async def test_redis_own_clock_is_never_early(live_pool: Pool) -> None:
    added = await add(live_pool, "a", delay_ms=30)
    while not await tick_all(live_pool):
        pass
    job = await pop_one(live_pool)
    assert job.lease >= added.due * 1000
    assert added.due >= job.created + 30


async def test_of_a_job_with_long_fields_its_body_is_not_read_to_move_it(
    redis: Redis, pool: Pool, clock: HeldClock
) -> None:
    """A page of 150 bodies of 256 KiB, read whole, blocked Redis for 0.1 s."""
    headers = b'{"trace":"%s"}' % (b"x" * 200)
    await add(pool, "a", body=b'"%s"' % (b"x" * 10_000), headers=headers, backoff_ms=(1_000,) * 32, delay_ms=1)
    clock.advance(1)
    await redis.read("CONFIG", "RESETSTAT")
    await tick_all(pool)
    *_, faults = await pool.call("audit", 0, ["a"], now=pool.clock.now(), buckets=pool.buckets)
    assert faults == []
    assert await pool.release((await pop_one(pool)).id) == Moved("delayed", clock.now_us // 1000 + 1_000)
    await pool.delete(["a"])
    stats = (await redis.read("INFO", "commandstats")).decode()
    assert re.findall(r"cmdstat_get:calls=(\d+)", stats) == ["1"]  # by the pop: the record
