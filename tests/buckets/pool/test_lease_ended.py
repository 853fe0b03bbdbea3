"""What is told of a job whose lease ended: due.lua sets it, and any later move takes it away."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from buckets.clock import HeldClock
from buckets.job import Cause, Job, State, Tag
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from tests.buckets.books import check_books
from tests.buckets.conftest import NewPool
from tests.buckets.jobs import add, finish, get, is_stored, kick, pop_one, state
from tests.kit.waiting import tick_all

TTR_MS = 1_000


async def lose(pool: Pool, clock: HeldClock, **fields: Any) -> int:
    """Add a job and let its lease end; returns when, in ms."""
    await add(pool, "a", ttr_ms=TTR_MS, **fields)
    await pop_one(pool, worker="w")
    clock.advance(TTR_MS)
    await tick_all(pool)
    return clock.now_us // 1000


@pytest.mark.parametrize("ladder", [(), (0,), (5_000,), (5_000, 60_000)])
async def test_a_job_says_when_its_lease_ended_and_who_had_it_also_after_its_back_off(
    redis: Redis, pool: Pool, clock: HeldClock, ladder: tuple[int, ...]
) -> None:
    ended = await lose(pool, clock, backoff_ms=ladder)
    for _ in ladder or [0]:
        job = await get(pool, "a")
        assert (job.lease_ended, job.text(Tag.WORKER)) == (ended, "w")
        await check_books(redis, pool)
        clock.advance(ladder[0] if ladder else 0)
        await tick_all(pool)
    assert await state(pool, "a") == "ready"
    assert (await get(pool, "a")).lease_ended == ended


async def test_the_second_end_is_told_by_its_own_step_of_the_ladder(pool: Pool, clock: HeldClock) -> None:
    await lose(pool, clock, backoff_ms=(5_000, 60_000))
    for delay in (5_000, 60_000, 60_000):
        clock.advance(delay)
        await tick_all(pool)
        await pop_one(pool)
        clock.advance(TTR_MS)
        await tick_all(pool)
        assert (await get(pool, "a")).lease_ended == clock.now_us // 1000


async def is_popped(pool: Pool, clock: HeldClock) -> None:
    await pop_one(pool)


async def is_released(pool: Pool, clock: HeldClock) -> None:
    await pop_one(pool)
    await pool.release("a")


async def is_given_back(pool: Pool, clock: HeldClock) -> None:
    await pool.unpop([await pop_one(pool)])


async def is_finished_late(pool: Pool, clock: HeldClock) -> None:
    await finish(pool, "a")


async def gets_another_priority(pool: Pool, clock: HeldClock) -> None:
    await pool.update("a", priority=9)


async def is_buried_and_kicked(pool: Pool, clock: HeldClock) -> None:
    await pop_one(pool)
    await pool.bury("a")
    assert (await get(pool, "a")).cause is Cause.BURIED
    await kick(pool, "a")


async def is_replaced(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", if_exists="replace")


async def test_whatever_happens_to_the_job_next_takes_that_away(
    subtests: pytest.Subtests, redis: Redis, new_pool: NewPool, clock: HeldClock
) -> None:
    cases: list[Callable[[Pool, HeldClock], Awaitable[None]]] = [
        is_popped,
        is_released,
        is_given_back,
        is_finished_late,
        gets_another_priority,
        is_buried_and_kicked,
        is_replaced,
    ]
    for move in cases:
        with subtests.test(move=move.__name__):
            pool = await new_pool()
            await lose(pool, clock)
            clock.advance(7)
            await move(pool, clock)
            assert (await get(pool, "a")).lease_ended is None
            await check_books(redis, pool)


async def test_a_release_takes_it_away_also_after_a_pop_of_a_version_that_left_it(
    redis: Redis, pool: Pool, clock: HeldClock
) -> None:
    await lose(pool, clock)
    await pop_one(pool)
    await redis.read("SETRANGE", pool.keys[0].job("a"), 3, bytes([4 + 16 * Cause.LEASE]))
    assert (await get(pool, "a")).cause is Cause.LEASE
    await pool.release("a", delay_ms=9)
    assert (await get(pool, "a")).lease_ended is None


async def test_a_job_in_back_off_that_is_run_or_gets_another_time_does_not_say_when_its_lease_ended(
    pool: Pool, clock: HeldClock
) -> None:
    for job_id in ("a", "b", "c"):
        await add(pool, job_id, ttr_ms=TTR_MS, backoff_ms=(60_000,))
        await pop_one(pool)
    clock.advance(TTR_MS)
    await tick_all(pool)
    ended = clock.now_us // 1000
    await pool.run("a")
    await pool.update("b", delay_ms=5_000)
    await pool.update("c", body=b"new", priority=9)
    assert [(await get(pool, job_id)).lease_ended for job_id in ("a", "b", "c")] == [None, None, ended]


async def test_a_lease_that_ends_as_the_last_try_is_a_death_by_tries(pool: Pool, clock: HeldClock) -> None:
    await lose(pool, clock, tries=1)
    job = await get(pool, "a")
    assert (job.cause, job.lease_ended, job.reason) == (Cause.TRIES, None, "lease ended")


async def test_what_killed_a_job_is_its_reason_whatever_an_earlier_release_said(
    redis: Redis, pool: Pool, clock: HeldClock
) -> None:
    await add(pool, "a", ttr_ms=TTR_MS, tries=2)
    await pop_one(pool)
    await pool.release("a", delay_ms=0, reason="busy")
    assert (await get(pool, "a")).reason == "busy"
    await pop_one(pool)
    clock.advance(TTR_MS)
    await tick_all(pool)
    assert (await get(pool, "a")).reason == "lease ended"
    await check_books(redis, pool)
    await kick(pool, "a")
    assert (await get(pool, "a")).reason == "busy"
    await pop_one(pool)
    await pool.release("a", delay_ms=0, reason="gone")
    await pop_one(pool)
    await pool.release("a", reason="broken")
    job = await get(pool, "a")
    assert (job.state, job.cause, job.reason) == (State.DEAD, Cause.TRIES, "broken")


async def test_a_job_that_was_delivered_before_comes_with_the_time_at_which_it_became_ready_again(
    redis: Redis, pool: Pool, clock: HeldClock
) -> None:
    async def delivered(**how: Any) -> Job:
        clock.advance(3)
        job = await pop_one(pool, **how)
        assert how.get("ttr_ms") == 0 or await is_stored(pool, job)
        return job

    added = await add(pool, "a", ttr_ms=TTR_MS, headers=b"{}")
    assert (await delivered()).ready_again is None
    clock.advance(TTR_MS)
    await tick_all(pool)
    lost = clock.now_us // 1000
    job = await delivered(worker="w")
    assert (job.ready_again, job.due, job.text(Tag.HEADERS), job.body) == (lost, added.due, "{}", b'"body"')
    await pool.release("a", delay_ms=5_000)
    clock.advance(5_000)
    await tick_all(pool)
    back = clock.now_us // 1000
    assert (await delivered()).ready_again == back
    await pool.release("a", delay_ms=0)
    assert (await delivered(ttr_ms=0)).ready_again == clock.now_us // 1000 - 3
    await check_books(redis, pool)


async def test_a_delivery_that_was_taken_back_does_not_count_as_one(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a")
    await pool.unpop([await pop_one(pool)])
    clock.advance(7)
    assert (await pop_one(pool)).ready_again is None
