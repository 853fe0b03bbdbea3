"""Pops over several topics by priority: the highest in any of them first, and otherwise as other pops."""

from __future__ import annotations

import asyncio
import random

import pytest

from buckets.clock import HeldClock
from buckets.job import NewJob, State, Tag
from buckets.keys import shard_of
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from buckets.topics.topics import Topics
from buckets.waiting.waiting import Waiting
from tests.buckets.books import check_books
from tests.buckets.jobs import add, delete, get, is_stored, pop, state
from tests.buckets.waiting.parked import hearing
from tests.kit.waiting import until

TOPICS = ("t", "u", "v")


async def ids(pool: Pool, *topics: str, count: int = 1000, **options: int) -> list[str]:
    return [job.id for job in await pop(pool, *(topics or TOPICS), count=count, by_priority=True, **options)]


async def test_the_highest_priority_of_any_topic_comes_first_and_equals_in_the_order_of_topics(
    redis: Redis, pool: Pool
) -> None:
    for topic in TOPICS:
        for priority in (4, 9, 0):
            for n in (1, 2):
                await add(pool, f"{topic}{priority}{n}", topic, priority=priority)
    order = [f"{topic}{priority}{n}" for priority in (9, 4, 0) for topic in ("u", "t") for n in (1, 2)]
    assert await ids(pool, "u", "t") == order
    assert await ids(pool) == ["v91", "v92", "v41", "v42", "v01", "v02"]
    await check_books(redis, pool)


async def test_one_at_a_time_comes_the_same(redis: Redis, pool: Pool) -> None:
    chance = random.Random(1)
    jobs = [NewJob(f"{n}", chance.choice(TOPICS), b"1", priority=chance.randrange(10)) for n in range(100)]
    await pool.add(jobs)
    order = sorted(jobs, key=lambda job: (-job.priority, TOPICS.index(job.topic), int(job.id)))
    assert [(await ids(pool, count=1))[0] for _ in jobs] == [job.id for job in order]
    assert await ids(pool) == []
    await check_books(redis, pool)


async def test_without_the_option_the_order_of_topics_comes_first(pool: Pool) -> None:
    await add(pool, "low", "t", priority=0)
    await add(pool, "high", "u", priority=9)
    assert [job.id for job in await pop(pool, "t", "u", count=9)] == ["low", "high"]


async def test_a_paused_topic_is_passed_over(pool: Pool) -> None:
    await add(pool, "a", "t", priority=9)
    await add(pool, "b", "u")
    await Topics(pool).pause("t", 5_000)
    popped = await pool.pop(["t", "u"], 9, by_priority=True)
    assert [job.id for job in popped.jobs] == ["b"]
    assert popped.opens_us == 5_000_000 and popped.ask_why


async def test_a_pop_of_topics_that_nobody_knows_says_so(pool: Pool) -> None:
    assert (await pool.pop(["t", "u"], by_priority=True)).ask_why
    await add(pool, "a", "u")
    await ids(pool, "t", "u")
    assert not (await pool.pop(["t", "u"], by_priority=True)).ask_why


async def test_deliveries_are_like_those_of_other_pops(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    """Each job twice, of which one is popped by priority: all but the id, the list and the time is the same."""
    shapes: list[dict[str, object]] = [
        {},
        {"ttr_ms": 0},
        {"headers": b"{}"},
        {"ttl_ms": 60_000},
        {"priority": 9, "tries": 1},
        {"retention_ms": 0},
        {"note": b"n", "keeps_body": True},
    ]
    for n, shape in enumerate(shapes):
        for topic in ("one", "other"):
            await pool.add([NewJob(f"{topic}{n}", topic, b"body", **shape)])  # type: ignore[arg-type]
    for options in ({}, {"worker": "w"}, {"ttr_ms": 500, "worker": "w2"}):
        one = await pop(pool, "one", count=9, **options)
        other = await pop(pool, "other", count=9, by_priority=True, **options)
        assert [job.id[3:] for job in one] == [job.id[5:] for job in other]
        assert len(one) > 1
        for first, second in zip(one, other, strict=True):
            assert first.raw.replace(b"one", b"other")[48:] == second.raw[48:]
            assert (first.lease, first.kind.attempts, first.next, first.state) == (
                *(second.lease, second.kind.attempts, second.next, second.state),
            )
            if first.state is State.RESERVED:
                assert await is_stored(pool, first) and await is_stored(pool, second)
        await pool.unpop(one)
        await pool.unpop(other)
    await check_books(redis, pool)


async def test_stale_entries_are_skipped(redis: Redis, pool: Pool) -> None:
    for n in range(600):
        await add(pool, f"{n}", "t", priority=9)
    for n in range(599):
        await delete(pool, f"{n}")
    await add(pool, "low", "u")
    assert await ids(pool, count=1) == ["599"]
    assert await ids(pool) == ["low"]
    await check_books(redis, pool)


async def test_no_more_than_the_room_is_handed_out(redis: Redis, pool: Pool) -> None:
    for topic, job_id in (("t", "a"), ("u", "b"), ("t", "c"), ("v", "d")):
        await add(pool, job_id, topic, b"x" * 1000)
    assert await ids(pool, room=2500) == ["a", "c"]
    assert await state(pool, "b") == "ready"
    assert await ids(pool, room=1) == ["b"]
    await check_books(redis, pool)


async def test_large_jobs_take_several_scripts(pool: Pool) -> None:
    for n in range(10):
        await add(pool, f"{n}", TOPICS[n % 2], b"x" * 100_000)
    assert sorted(await ids(pool, count=10)) == [str(n) for n in range(10)]


async def test_concurrent_pops_share_a_script_only_with_their_like(redis: Redis, pool: Pool) -> None:
    await add(pool, "low", "t", priority=0)
    await add(pool, "high", "u", priority=9)
    await add(pool, "mid", "u", priority=5)
    by_order, by_priority = await asyncio.gather(
        pool.pop(["t", "u"], worker="o"), pool.pop(["t", "u"], worker="p", by_priority=True)
    )
    assert [job.id for job in by_order.jobs] == ["low"]
    assert [job.id for job in by_priority.jobs] == ["high"]
    assert (await get(pool, "high")).text(Tag.WORKER) == "p"


async def test_concurrent_pops_by_priority_are_served_in_their_order(pool: Pool) -> None:
    for n, topic in enumerate("tuvt"):
        await add(pool, topic + str(n), topic, priority=n)
    popped = await asyncio.gather(*(pool.pop(TOPICS, worker=f"w{n}", by_priority=True) for n in range(5)))
    assert [[job.id for job in each.jobs] for each in popped] == [["t3"], ["v2"], ["u1"], ["t0"], []]
    assert [(job.id, job.text(Tag.WORKER)) for each in popped for job in each.jobs][:2] == [("t3", "w0"), ("v2", "w1")]


async def test_a_pop_by_priority_waits(pool: Pool) -> None:
    async with hearing(pool) as waiting:
        parked = [asyncio.create_task(waiting.pop(TOPICS, 1, 60, by_priority=True)) for _ in range(2)]
        await until(lambda: waiting.parked == 2)
        await add(pool, "a", "v")
        await add(pool, "b", "u")
        found = [job.id for each in await asyncio.gather(*parked) for job in each.jobs]
        assert sorted(found) == ["a", "b"]


async def test_in_many_shards_each_job_is_found_and_the_order_holds_within_each(redis: Redis) -> None:
    pool = await Pool.open(redis, shards=4)
    chance = random.Random(2)
    jobs = [NewJob(f"{n}", chance.choice(TOPICS), b"1", priority=chance.randrange(10)) for n in range(200)]
    await pool.add(jobs)
    found = await pop(pool, *TOPICS, count=1000, by_priority=True)
    assert len(found) == 200
    levels: dict[int, list[tuple[int, int]]] = {}
    for job in found:
        levels.setdefault(shard_of(job.id, 4), []).append((-job.priority, TOPICS.index(job.topic)))
    assert len(levels) == 4
    assert all(order == sorted(order) for order in levels.values())
    await add(pool, "later", "v")
    assert await ids(pool, count=1) == ["later"]
    await check_books(redis, pool)
    await pool.close()


@pytest.mark.parametrize("shards", [1, 3])
async def test_waiting_pops_by_priority_get_every_job(redis: Redis, shards: int) -> None:
    pool = await Pool.open(redis, shards=shards)
    async with hearing(pool) as waiting:
        found: list[str] = []
        workers = [asyncio.create_task(work(waiting, found)) for _ in range(4)]
        for n in range(60):
            await add(pool, f"{n}", TOPICS[n % 3], priority=n % 10)
        await until(lambda: len(found) == 60)
        assert len(set(found)) == 60
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    await pool.close()


async def work(waiting: Waiting, found: list[str]) -> None:
    while True:
        found += [job.id for job in (await waiting.pop(TOPICS, 1, 60, by_priority=True)).jobs]
