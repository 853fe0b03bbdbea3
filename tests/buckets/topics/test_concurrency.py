"""The concurrency of a topic: so many jobs are reserved at a time; whatever ends a reservation makes a place free."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from buckets.clock import HeldClock
from buckets.errors import Limited
from buckets.job import Job, NewJob, State
from buckets.pool.limits import Closed, Limit
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from buckets.topics.topics import Topics
from buckets.topics.walk import Walk
from tests.buckets.books import check_books
from tests.buckets.jobs import add, delete, finish, get, pop, pop_one, popped_ids
from tests.kit.waiting import until


async def fill(pool: Pool, jobs: int, **fields: Any) -> None:
    await pool.add([NewJob(f"{n}", "t", b"1", **fields) for n in range(jobs)])


async def reserved(pool: Pool) -> int:
    return (await Topics(pool).counts("t"))["reserved"]


async def test_no_more_jobs_are_reserved_than_the_topic_allows(redis: Redis, pool: Pool) -> None:
    pool.limits = {"t": Limit(concurrency=3)}
    await fill(pool, 5)
    assert await popped_ids(pool) == ["0", "1", "2"]
    popped = await pool.pop(["t"])
    assert (popped.jobs, popped.limited, popped.left) == ([], (Closed("t", "concurrency", 1_000_000),), 2)
    await finish(pool, "1")
    assert await popped_ids(pool) == ["3"]
    await check_books(redis, pool)


async def test_both_limits_hold_together(pool: Pool, clock: HeldClock) -> None:
    pool.limits = {"t": Limit(rate=50, concurrency=2)}
    await fill(pool, 5)
    assert [len(await popped_ids(pool)) for _ in range(2)] == [1, 0]
    clock.advance(40)
    assert [len(await popped_ids(pool)) for _ in range(2)] == [1, 0]
    clock.advance(1000)
    assert await popped_ids(pool) == []
    await finish(pool, "0")
    assert await popped_ids(pool) == ["2"]


async def test_a_lost_lease_holds_its_place_until_it_ends(pool: Pool, clock: HeldClock) -> None:
    pool.limits = {"t": Limit(concurrency=1)}
    await fill(pool, 2, ttr_ms=1000)
    held = await pop_one(pool)
    clock.advance(1001)
    assert await popped_ids(pool) == []
    await pool.due(0, (await get(pool, held.id)).bucket)
    assert await popped_ids(pool) == ["1"]


async def test_a_job_that_is_delivered_at_most_once_takes_no_place(pool: Pool) -> None:
    pool.limits = {"t": Limit(concurrency=2)}
    await fill(pool, 5, ttr_ms=0)
    assert len(await popped_ids(pool)) == 5
    await add(pool, "a")
    await add(pool, "b")
    await add(pool, "c")
    assert await popped_ids(pool) == ["a", "b"]
    assert [job.id for job in await pop(pool, ttr_ms=0)] == ["c"]


async def test_a_pop_of_one_id_asks_it(pool: Pool) -> None:
    pool.limits = {"t": Limit(concurrency=1)}
    await fill(pool, 2)
    await pool.take("1")
    with pytest.raises(Limited) as refused:
        await pool.take("0")
    assert refused.value.limit == "concurrency"
    assert (await pool.take("0", ttr_ms=0)).state is State.FINISHED


async def test_a_touch_keeps_the_place(redis: Redis, pool: Pool) -> None:
    pool.limits = {"t": Limit(concurrency=1)}
    await fill(pool, 2)
    await pop_one(pool)
    heard = await rings(redis, pool, lambda: pool.touch("0"))
    assert heard == []
    assert (await rings(redis, pool, lambda: finish(pool, "0"))) == ["ready 1 t"]


async def rings(redis: Redis, pool: Pool, work: Callable[[], Awaitable[object]]) -> list[str]:
    """The rings of the topic while the work is done."""
    heard: list[str] = []
    stands = asyncio.Event()
    listening = asyncio.create_task(pool.redis.listen(pool.keys[0].bell, heard.append, stands.set))
    await stands.wait()
    await work()
    await redis.read("SPUBLISH", pool.keys[0].bell, "over")
    await until(lambda: "over" in heard)
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    return [each for each in heard if each == "ready 1 t"]


async def end_of_lease(pool: Pool, job: Job, clock: HeldClock) -> None:
    clock.advance(60_001)
    await pool.due(0, job.bucket)


async def purge(pool: Pool, job: Job, clock: HeldClock) -> None:
    await Walk(pool).purge("t", State.RESERVED)


async def end_life(pool: Pool, job: Job, clock: HeldClock) -> None:
    ended = (job.id, job.created, job.lease, int(State.FINISHED))
    await pool.call("end_life", 0, ended, now=clock.now())


WAYS: dict[str, Callable[[Pool, Job, HeldClock], Awaitable[object]]] = {
    "finish": lambda pool, job, clock: finish(pool, job.id),
    "finish of a topic": lambda pool, job, clock: finish(pool, job.id, None, "t"),
    "release": lambda pool, job, clock: pool.release(job.id),
    "release for later": lambda pool, job, clock: pool.release(job.id, delay_ms=1000),
    "bury": lambda pool, job, clock: pool.bury(job.id),
    "delete": lambda pool, job, clock: delete(pool, job.id),
    "delete of a topic": lambda pool, job, clock: delete(pool, job.id, "t"),
    "unpop": lambda pool, job, clock: pool.unpop([job]),
    "purge": purge,
    "end of a lease": end_of_lease,
    "end of a life": end_life,
}


@pytest.mark.parametrize("way", WAYS)
async def test_every_way_out_of_reserved_rings_for_those_who_wait(
    redis: Redis, pool: Pool, clock: HeldClock, way: str
) -> None:
    pool.limits = {"t": Limit(concurrency=1)}
    await fill(pool, 2)
    job = await pop_one(pool)
    assert "ready 1 t" in await rings(redis, pool, lambda: WAYS[way](pool, job, clock))
    assert len(await popped_ids(pool)) == 1
    await check_books(redis, pool)


@pytest.mark.parametrize("way", ["finish", "bury", "delete", "purge", "end of a life"])
async def test_nobody_is_rung_where_nothing_waits_or_nothing_is_limited(
    redis: Redis, pool: Pool, clock: HeldClock, way: str
) -> None:
    await fill(pool, 2)
    first = await pop_one(pool)
    assert await rings(redis, pool, lambda: WAYS[way](pool, first, clock)) == []
    pool.limits = {"t": Limit(concurrency=1)}
    last = await pop_one(pool)
    assert await rings(redis, pool, lambda: WAYS[way](pool, last, clock)) == []


async def test_a_job_that_left_its_place_holds_none_any_more(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    """Popped again without a limit, it rings for nobody, though others wait."""
    pool.limits = {"t": Limit(concurrency=1)}
    await fill(pool, 1)
    await pop_one(pool)
    await pool.release("0", delay_ms=0)
    await add(pool, "1")
    pool.limits = {}
    await pop_one(pool)
    assert await rings(redis, pool, lambda: finish(pool, "0")) == []


async def test_a_lower_limit_waits_until_enough_have_ended(pool: Pool) -> None:
    await fill(pool, 5)
    await pop(pool, count=3)
    pool.limits = {"t": Limit(concurrency=2)}
    await finish(pool, "0")
    assert await popped_ids(pool) == []
    await finish(pool, "1")
    assert await popped_ids(pool) == ["3"]
    assert await reserved(pool) == 2
