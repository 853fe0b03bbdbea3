"""What becomes of jobs whose time has passed while Redis was away, and of those whose ttl is over."""

from __future__ import annotations

import pytest

from buckets.job import Cause, State, Tag
from tests.buckets.books import check_books
from tests.buckets.jobs import add, get, pop
from tests.jobqueue.journal.restoring.lost import World
from tests.kit.waiting import tick_all, until

HOUR = 3_600_000


async def lose_overdue_jobs(world: World) -> int:
    """Lose three jobs that are overdue by now, the first of them ready before, and one that is not; returns when the
    last became due, in ms."""
    await add(world.pool, "a", ttl_ms=HOUR)
    for number, name in enumerate("bc", 1):
        await add(world.pool, name, delay_ms=number, backoff_ms=(5_000,))
    await add(world.pool, "later", delay_ms=HOUR)
    await world.drained()
    last = (await get(world.pool, "c")).due
    await world.lose()

    async def is_overdue() -> bool:
        return await world.pool.now_ms() > last

    await until(is_overdue)
    return last


async def test_overdue_jobs_are_ready_in_the_order_of_their_time(world: World) -> None:
    await lose_overdue_jobs(world)
    assert await world.counts() == {"looked": 4, "put": 4, "overdue": 3}
    jobs = await pop(world.pool, count=4)
    assert [job.id for job in jobs] == ["a", "b", "c"]
    assert jobs[1].backoff == (5_000,) and jobs[1].attempts == 1
    await check_books(world.pool.redis, world.pool)


async def test_overdue_jobs_may_stay_away(world: World) -> None:
    await lose_overdue_jobs(world)
    assert await world.counts(overdue="skip") == {"looked": 4, "put": 1, "skipped": 3}
    assert set(await world.records()) == {"later"}
    assert (await world.counts())["put"] == 3


async def test_overdue_jobs_may_be_dead_letters(world: World) -> None:
    await lose_overdue_jobs(world)
    assert await world.counts(overdue="dead") == {"looked": 4, "put": 4, "buried": 3}
    for name in "abc":
        job = await get(world.pool, name)
        assert (job.state, job.cause, job.text(Tag.REASON)) == (State.DEAD, Cause.BURIED, "overdue at restore")
    assert (await get(world.pool, "b")).backoff == (5_000,)
    await world.pool.kick(["b"])
    assert (await get(world.pool, "b")).state is State.READY
    await check_books(world.pool.redis, world.pool)


async def test_overdue_jobs_are_spread_evenly_in_the_order_of_their_time(world: World) -> None:
    await lose_overdue_jobs(world)
    before = await world.pool.now_ms()
    assert await world.counts(spread_s=3_000.0) == {"looked": 4, "put": 4, "overdue": 3}
    due = [(await get(world.pool, name)).next - before for name in "abc"]
    assert [round(ms / 1_000_000) for ms in due] == [0, 1, 2]
    assert due[1] - due[0] == pytest.approx(1_000_000, abs=60_000)
    job = await get(world.pool, "b")
    assert job.state is State.DELAYED and job.due < before and job.backoff == (5_000,)
    await check_books(world.pool.redis, world.pool)


@pytest.mark.parametrize("overdue", ["run", "skip", "dead"])
async def test_a_ttl_that_is_over_is_a_death_by_ttl(world: World, overdue: str) -> None:
    await add(world.pool, "delayed", delay_ms=1, ttl_ms=1)
    await add(world.pool, "ready", ttl_ms=2)
    await world.drained()
    await world.lose()
    assert await world.counts(overdue=overdue) == {"looked": 2, "put": 2, "expired": 2}
    for name in ("delayed", "ready"):
        job = await get(world.pool, name)
        assert (job.state, job.cause) == (State.DEAD, Cause.TTL) and job.next > job.due
    await tick_all(world.pool)
    await check_books(world.pool.redis, world.pool)
