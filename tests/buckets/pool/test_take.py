"""buckets.pool.popping, take.lua: the pop of one job by its id."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from buckets.clock import HeldClock
from buckets.errors import NotFound, Refused, Reserved, StaleLease, WrongState
from buckets.job import Cause, State
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from buckets.topics.topics import Topics
from tests.buckets.books import check_books
from tests.buckets.conftest import NewPool
from tests.buckets.jobs import add, finish, get, is_stored, pop_one, popped_ids, state
from tests.buckets.lives import (
    Bring,
    dead,
    delayed_again,
    deleted,
    finished,
    never_popped_dead,
    never_popped_delayed,
    never_popped_ready,
    ready_again,
    reserved,
    unknown,
)
from tests.kit.redis_server import RedisServer
from tests.kit.waiting import tick_all

TAKEN: list[Bring] = [
    *(never_popped_delayed, never_popped_ready, never_popped_dead),
    *(delayed_again, ready_again, dead),
]
REFUSED: list[tuple[Bring, type[Refused], str | None]] = [
    (reserved, Reserved, "reserved"),
    (finished, WrongState, "finished"),
    (deleted, NotFound, "deleted"),
    (unknown, NotFound, None),
]


async def test_a_job_that_nobody_has_is_reserved_by_its_id(
    subtests: pytest.Subtests, redis: Redis, new_pool: NewPool, clock: HeldClock
) -> None:
    for ttr_ms, worker, bring in itertools.product((None, 7_000), ("", "w"), TAKEN):
        with subtests.test(ttr_ms=ttr_ms, worker=worker, bring=bring.__name__):
            pool = await new_pool()
            newest, _ = await bring(pool, clock)
            before = await get(pool, "a")
            job = await pool.take("a", ttr_ms=ttr_ms, worker=worker)
            assert (job.state, job.body, job.lease > newest) == (State.RESERVED, b'"body"', True)
            assert (job.deliveries, job.cause) == (before.deliveries + 1, Cause.NONE)
            assert job.attempts == (1 if before.state is State.DEAD else before.attempts + 1)
            assert job.next == clock.now_us // 1000 + (ttr_ms or before.own_ttr)
            now_ms = clock.now_us // 1000
            since = before.next if before.state is State.READY else now_ms
            assert job.due == (before.due if before.state is State.READY else now_ms)
            assert job.ready_again == (since if before.deliveries else None)
            assert await is_stored(pool, job)
            await check_books(redis, pool)
            assert await popped_ids(pool) == []
            await pool.touch("a", job.lease)
            assert await finish(pool, "a", job.lease) == "finished"
            await check_books(redis, pool)


@pytest.mark.parametrize(("bring", "refusal", "was"), REFUSED)
async def test_any_other_job_is_refused_and_stays_as_it_is(
    pool: Pool, clock: HeldClock, bring: Bring, refusal: type[Refused], was: str | None
) -> None:
    await bring(pool, clock)
    before = await pool.get("a")
    with pytest.raises(refusal) as refused:
        await pool.take("a")
    assert refused.value.state == was
    assert await pool.get("a") == before


@pytest.mark.parametrize("bring", TAKEN)
async def test_a_taken_job_comes_again_when_its_lease_ends(
    redis: Redis, pool: Pool, clock: HeldClock, bring: Bring
) -> None:
    await bring(pool, clock)
    taken = await pool.take("a", ttr_ms=500)
    clock.advance(499)
    await tick_all(pool)
    assert await state(pool, "a") == "reserved"
    clock.advance(1)
    await tick_all(pool)
    assert await state(pool, "a") != "reserved"
    with pytest.raises(StaleLease):
        await pool.touch("a", (await pool.take("a")).lease - 1)
    assert (await get(pool, "a")).lease > taken.lease
    await check_books(redis, pool)


async def test_a_dead_letter_that_is_taken_has_all_its_tries_and_its_ladder_again(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", tries=2, backoff_ms=(1_000, 9_000), ttr_ms=100, ttl_ms=60_000)
    await pop_one(pool)
    await pool.release("a")
    clock.advance(1_000)
    await tick_all(pool)
    await pop_one(pool)
    assert (await pool.release("a")).state == "dead"
    clock.advance(60_000)
    await pool.take("a")
    moved = await pool.release("a")
    assert (moved.state, moved.due) == ("delayed", clock.now_us // 1000 + 1_000)
    await pool.take("a")
    assert (await pool.release("a")).state == "dead"


@pytest.mark.parametrize("bring", TAKEN)
async def test_a_job_taken_at_most_once_is_gone(redis: Redis, pool: Pool, clock: HeldClock, bring: Bring) -> None:
    await bring(pool, clock)
    job = await pool.take("a", ttr_ms=0)
    assert (job.state, job.body) == (State.FINISHED, b'"body"')
    assert await state(pool, "a") == "finished"
    await check_books(redis, pool)


async def test_a_pause_does_not_hold_up_who_names_the_job(pool: Pool) -> None:
    await add(pool, "a")
    await Topics(pool).pause("t", None)
    assert (await pool.take("a")).id == "a"


async def test_a_take_counts_as_a_delivery(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", delay_ms=5_000)
    await pool.take("a", ttr_ms=100)
    clock.advance(100)
    await tick_all(pool)
    await pool.take("a")
    totals = (await Topics(pool).stats("t")).totals
    assert (totals["delivered"], totals["redelivered"]) == (2, 1)


async def test_the_place_of_a_taken_job_is_not_popped_a_second_time(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    for job_id in "abc":
        await add(pool, job_id)
    await pool.take("b")
    await check_books(redis, pool)
    await pool.release("b", delay_ms=0)
    assert await popped_ids(pool) == ["a", "c", "b"]
    await check_books(redis, pool)


async def test_the_place_of_a_job_that_died_of_its_ttl_is_stale_once_it_is_taken(
    redis: Redis, pool: Pool, clock: HeldClock
) -> None:
    await add(pool, "a", ttl_ms=1_000)
    await add(pool, "b")
    clock.advance(1_000)
    await tick_all(pool)
    assert await state(pool, "a") == "dead"
    await pool.take("a")
    await check_books(redis, pool)


async def test_a_taken_job_whose_caller_is_gone_goes_back(own_server: RedisServer) -> None:
    redis = Redis(own_server.url)
    pool = await Pool.open(redis)
    await add(pool, "a")
    await add(pool, "b")
    await pool.unpop([await pool.take("b")])  # from now on Redis knows the script
    await pool.unpop([await pool.take("a")])
    own_server.freeze()
    taking = asyncio.create_task(pool.take("b"))
    for _ in range(10):
        await asyncio.sleep(0)
    taking.cancel()
    await asyncio.gather(taking, return_exceptions=True)
    own_server.thaw()
    await pool.close()
    assert (await Topics(pool).stats("t")).totals["undone"] == 3
    assert ((await get(pool, "b")).state, (await get(pool, "b")).attempts) == (State.READY, 0)
    assert await popped_ids(pool) == ["b", "a"]
    await check_books(redis, pool)
    await redis.close()
