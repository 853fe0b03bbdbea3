"""include/by_key.lua: the jobs of a key run one after the other, in the order of their due times."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from buckets.clock import HeldClock
from buckets.errors import Limited
from buckets.job import NewJob
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from tests.buckets.books import check_books
from tests.buckets.conftest import NewPool
from tests.buckets.jobs import add, delete, finish, kick, pop_one, popped_ids, state
from tests.kit.waiting import tick_all

KEY: dict[str, Any] = {"key": "7"}
End = Callable[[Pool, HeldClock], Awaitable[object]]


async def _end_lease_for_good(pool: Pool, clock: HeldClock) -> None:
    clock.advance(60_000)
    await tick_all(pool)


ENDS: dict[str, End] = {
    "finish": lambda pool, clock: finish(pool, "a"),
    "delete": lambda pool, clock: delete(pool, "a"),
    "bury": lambda pool, clock: pool.bury("a"),
    "release, and no tries are left": lambda pool, clock: pool.release("a"),
    "the lease ends, and no tries are left": _end_lease_for_good,
    "purge": lambda pool, clock: pool.call("purge", 0, ["a"], now=clock.now(), topic="t", state=3, begun=clock.now_us),
}
KEEPS: dict[str, End] = {
    "touch": lambda pool, clock: pool.touch("a"),
    "release with a delay": lambda pool, clock: pool.release("a", delay_ms=60_000),
}


async def test_every_end_of_a_delivery_makes_the_next_job_ready(
    subtests: pytest.Subtests, redis: Redis, new_pool: NewPool, clock: HeldClock
) -> None:
    for name, end in ENDS.items():
        with subtests.test(name):
            pool = await new_pool()
            for each in "abc":
                await add(pool, each, tries=1, **KEY)
            await add(pool, "other", key="8")
            await add(pool, "none")
            assert await popped_ids(pool) == ["a", "other", "none"]
            assert await popped_ids(pool) == []
            await check_books(redis, pool)
            await end(pool, clock)
            await check_books(redis, pool)
            assert "b" in await popped_ids(pool)
            assert await state(pool, "c") == "ready"
            await check_books(redis, pool)
            await finish(pool, "b")
            await delete(pool, "c")
            await check_books(redis, pool)


async def test_a_job_that_comes_back_keeps_its_key(
    subtests: pytest.Subtests, redis: Redis, new_pool: NewPool, clock: HeldClock
) -> None:
    for name, keep in KEEPS.items():
        with subtests.test(name):
            pool = await new_pool()
            await add(pool, "a", **KEY)
            await add(pool, "b", **KEY)
            await pop_one(pool)
            await keep(pool, clock)
            assert await popped_ids(pool) == []
            await check_books(redis, pool)
            clock.advance(60_000)
            await tick_all(pool)
            assert await popped_ids(pool) == ["a"]
            await check_books(redis, pool)
            await pool.release("a")
            assert await popped_ids(pool) == ["a"]


async def test_blocked_jobs_run_in_the_order_of_their_due_times_and_then_of_their_adds(
    redis: Redis, pool: Pool, clock: HeldClock
) -> None:
    await add(pool, "first", **KEY)
    await add(pool, "late", delay_ms=3_000, **KEY)
    await pool.add([NewJob(each, "t", b"1", delay_ms=1_000, **KEY) for each in ("z", "y", "x")])
    await add(pool, "w", delay_ms=1_000, **KEY)
    await add(pool, "soon", delay_ms=500, priority=0, **KEY)
    clock.advance(5_000)
    await tick_all(pool)
    await add(pool, "now", priority=9, **KEY)
    await add(pool, "past", due_ms=1, **KEY)
    await check_books(redis, pool)
    order = []
    while job := (await pool.pop(("t",), 10)).jobs:
        (only,) = job
        order.append(only.id)
        await finish(pool, only.id)
        await check_books(redis, pool)
    assert order == ["first", "soon", "z", "y", "x", "w", "late", "now", "past"]


async def test_as_many_jobs_of_a_key_run_as_their_limit_allows(redis: Redis, pool: Pool) -> None:
    await pool.add([NewJob(f"{n}", "t", b"1", key="7", key_concurrency=3) for n in range(6)])
    assert await popped_ids(pool) == ["0", "1", "2"]
    await pool.finish([("0", None), ("2", None)])
    assert await popped_ids(pool) == ["3", "4"]
    await check_books(redis, pool)


async def test_a_dead_job_waits_for_its_key_after_a_kick(redis: Redis, pool: Pool) -> None:
    await add(pool, "a", **KEY)
    await add(pool, "b", **KEY)
    await pop_one(pool)
    await pool.bury("a")
    assert (await pop_one(pool)).id == "b"
    await kick(pool, "a")
    await check_books(redis, pool)
    assert await popped_ids(pool) == []
    await finish(pool, "b")
    assert await popped_ids(pool) == ["a"]


async def test_a_job_that_is_replaced_leaves_its_key(redis: Redis, pool: Pool) -> None:
    for each in "abc":
        await add(pool, each, **KEY)
    await add(pool, "b", delay_ms=1_000, if_exists="replace", key="8")
    await check_books(redis, pool)
    await add(pool, "a", delay_ms=1_000, if_exists="replace", **KEY)
    await check_books(redis, pool)
    assert await popped_ids(pool) == ["c"]
    await add(pool, "b", if_exists="replace", **KEY)
    await check_books(redis, pool)
    assert await popped_ids(pool) == []


async def _refused(pool: Pool, job_id: str) -> None:
    with pytest.raises(Limited) as refusal:
        await pool.take(job_id)
    assert refusal.value.limit == "per_key"


async def test_a_pop_of_one_id_of_a_busy_key_is_refused(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    for each in "abc":
        await add(pool, each, **KEY)
    await add(pool, "later", delay_ms=1_000, **KEY)
    await _refused(pool, "b")
    await _refused(pool, "later")
    await pool.take("a")
    await _refused(pool, "c")
    await finish(pool, "a")
    await check_books(redis, pool)
    await delete(pool, "b")
    await pool.take("c")
    await check_books(redis, pool)
    await finish(pool, "c")
    await pool.take("later")
    await check_books(redis, pool)


async def test_jobs_that_are_never_reserved_wait_for_no_other(redis: Redis, pool: Pool) -> None:
    await add(pool, "a", **KEY)
    for each in "bc":
        await add(pool, each, ttr_ms=0, **KEY)
    assert await popped_ids(pool) == ["a", "b", "c"]
    await add(pool, "d", **KEY)
    await add(pool, "e", **KEY)
    await finish(pool, "a")
    assert [job.id for job in (await pool.pop(("t",), 5, ttr_ms=0)).jobs] == ["d"]
    await check_books(redis, pool)
    assert [job.id for job in (await pool.pop(("t",), 5, ttr_ms=0)).jobs] == ["e"]
    await check_books(redis, pool)


async def test_a_pop_that_nobody_received_gives_the_job_back_with_its_key(redis: Redis, pool: Pool) -> None:
    await add(pool, "a", **KEY)
    await add(pool, "b", **KEY)
    job = await pop_one(pool)
    await pool.unpop([job])
    await check_books(redis, pool)
    assert await popped_ids(pool) == ["a"]


async def test_changes_of_blocked_and_first_jobs_keep_the_order(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", **KEY)
    await add(pool, "b", ttl_ms=1_000, **KEY)
    await add(pool, "c", **KEY)
    await pool.update("b", priority=9)
    await pool.update("a", priority=1)
    await pool.update("c", body=b"2")
    await check_books(redis, pool)
    assert await popped_ids(pool) == ["a"]
    clock.advance(2_000)
    await tick_all(pool)
    assert await state(pool, "b") == "dead"
    await check_books(redis, pool)
    await finish(pool, "a")
    assert await popped_ids(pool) == ["c"]


async def test_a_job_that_is_due_as_its_key_becomes_free_waits_for_earlier_ones(redis: Redis, clock: HeldClock) -> None:
    pool = await Pool.open(redis, "one", buckets=1, clock=clock)
    await add(pool, "a", tries=1, ttr_ms=1_000, **KEY)
    await pop_one(pool)
    await add(pool, "b", **KEY)
    await add(pool, "c", delay_ms=500, **KEY)
    clock.advance(1_000)
    await tick_all(pool)
    assert await state(pool, "a") == "dead"
    await check_books(redis, pool)
    assert await popped_ids(pool) == ["b"]
    await pool.close()


async def test_a_holder_that_is_replaced_goes_behind_earlier_jobs(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", **KEY)
    await add(pool, "b", **KEY)
    clock.advance(1)
    await add(pool, "a", if_exists="replace", **KEY)
    await check_books(redis, pool)
    assert await popped_ids(pool) == ["b"]


async def test_the_jobs_of_a_key_with_a_rate_are_delivered_so_far_apart(
    redis: Redis, pool: Pool, clock: HeldClock
) -> None:
    paced: dict[str, Any] = {"key": "7", "key_concurrency": 0, "key_gap_us": 1_000_000}
    for each in "abcd":
        await add(pool, each, **paced)
    await add(pool, "other", **paced | {"key": "8"})
    assert await popped_ids(pool) == ["a", "other"]
    clock.advance(999)
    await tick_all(pool)
    assert await popped_ids(pool) == []
    await _refused(pool, "b")
    clock.advance(1)
    await tick_all(pool)
    clock.advance(5_000)  # nobody pops
    await tick_all(pool)
    assert await popped_ids(pool) == ["b"]
    await tick_all(pool)
    assert await popped_ids(pool) == []
    clock.advance(1_000)
    await tick_all(pool)
    await delete(pool, "c")  # which was in the list
    assert await popped_ids(pool) == ["d"]
    clock.advance(1_000)
    await tick_all(pool)
    assert not await redis.read("KEYS", "*:b:*") or await state(pool, "d") == "reserved"
    for each in ("a", "b", "d", "other"):
        await finish(pool, each)
    await add(pool, "first", **paced | {"key": "9"})
    assert (await pool.take("first")).id == "first"  # the rate allows what is in the list
    await finish(pool, "first")
    clock.advance(1_000)
    await tick_all(pool)
    await add(pool, "last", **paced)
    await delete(pool, "last")  # which was in the list
    assert await redis.read("KEYS", "*kh:*") == []


async def test_jobs_that_are_never_reserved_wait_for_the_rate_of_their_key(pool: Pool, clock: HeldClock) -> None:
    for each in "ab":
        await add(pool, each, ttr_ms=0, key="7", key_gap_us=1_000_000)
    assert await popped_ids(pool) == ["a"]
    assert await popped_ids(pool) == []
    clock.advance(1_000)
    await tick_all(pool)
    assert await popped_ids(pool) == ["b"]


async def test_jobs_of_a_key_fall_due_in_their_order_whatever_requests_added_them(
    redis: Redis, clock: HeldClock
) -> None:
    pool = await Pool.open(redis, "many", buckets=8, clock=clock)
    for n in range(20):
        await add(pool, f"{n:02}", delay_ms=1_000, **KEY)
        await add(pool, f"{99 - n}", delay_ms=500 - n, key="8")
    clock.advance(5_000)  # the timers were away
    ran = []
    for bucket in range(pool.buckets):
        await pool.due(0, bucket)
        while jobs := await popped_ids(pool):
            ran += jobs
            for each in jobs:
                await finish(pool, each)
    assert [each for each in ran if each < "50"] == [f"{n:02}" for n in range(20)]
    assert [each for each in ran if each > "50"] == [f"{n}" for n in range(80, 100)]
    await pool.close()


async def test_a_rate_counts_retries(pool: Pool, clock: HeldClock) -> None:
    for each in "ab":
        await add(pool, each, ttr_ms=400, backoff_ms=(0,), key="7", key_concurrency=0, key_gap_us=1_000_000)
    assert await popped_ids(pool) == ["a"]
    await pool.release("a", delay_ms=0)
    assert await popped_ids(pool) == []
    await _refused(pool, "a")
    clock.advance(1_000)
    await tick_all(pool)
    assert await popped_ids(pool) == ["a"]
    clock.advance(999)  # in which the lease ends
    await tick_all(pool)
    assert await popped_ids(pool) == []
    clock.advance(1)
    await tick_all(pool)
    assert await popped_ids(pool) == ["a"]
    await finish(pool, "a")
    clock.advance(1_000)
    await tick_all(pool)
    assert await popped_ids(pool) == ["b"]
    await pool.release("b", delay_ms=300)
    await _refused(pool, "b")


async def test_a_job_that_comes_back_at_once_waits_in_its_order(
    subtests: pytest.Subtests, redis: Redis, new_pool: NewPool, clock: HeldClock
) -> None:
    for name, end in (KEEPS | {"release at once": lambda pool, clock: pool.release("a", delay_ms=0)}).items():
        with subtests.test(name):
            pool = await new_pool()
            await add(pool, "b", delay_ms=500, **KEY)
            clock.advance(600)  # its timer is late
            await add(pool, "a", backoff_ms=(0,), ttr_ms=1_000, **KEY)
            assert await popped_ids(pool) == ["a"]
            await tick_all(pool)
            await end(pool, clock)
            await check_books(redis, pool)
            assert await popped_ids(pool) == ([] if name in KEEPS else ["b"])
