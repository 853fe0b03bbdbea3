"""The rate of a topic: in no second more deliveries than it and a hundredth of it allow, one at least."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pytest

from buckets.clock import HeldClock
from buckets.errors import Limited
from buckets.job import NewJob
from buckets.pool.limits import Limit
from buckets.pool.pool import Pool
from buckets.pool.pop_search import Popped
from buckets.redis.client import Redis
from tests.buckets.books import check_books
from tests.buckets.conftest import NewPool
from tests.buckets.jobs import add, is_stored, pop, popped_ids, state

SECOND_US = 1_000_000
RATES = [0.2, 0.999, 1.0, 1.5, 7.3, 50.0, 99.0, 100.0, 150.0, 250.0, 1000.0, 12_345.6]


def most_in_a_second(times_us: Sequence[int]) -> int:
    """The most deliveries in any second, which begins with one of them."""
    times, most, last = sorted(times_us), 0, 0
    for first, begin in enumerate(times):
        while last < len(times) and times[last] < begin + SECOND_US:
            last += 1
        most = max(most, last - first)
    return most


def bound(rate: float) -> float:
    """The most deliveries that a second may have."""
    return rate + max(1.0, rate / 100)


async def fill(pool: Pool, jobs: int, topic: str = "t", **fields: Any) -> None:
    await pool.add([NewJob(f"{topic}{n:05d}", topic, b"1", **fields) for n in range(jobs)])


def opening(popped: Popped) -> int:
    """In how many us the topic opens, as a pop says, which rounds up."""
    ((topic, limit, opens_us),) = popped.limited
    assert (topic, limit) == ("t", "rate")
    return opens_us // 10 * 10


def test_what_may_be_saved_breaks_no_second(subtests: pytest.Subtests) -> None:
    """A second has what was saved before it, and what comes in it."""
    for rate in RATES:
        with subtests.test(rate=rate):
            burst = Limit(rate).burst
            assert burst >= max(1.0, rate / 100)
            assert int(rate + burst) <= bound(rate)


async def test_no_second_has_more_deliveries_whenever_pops_come(
    subtests: pytest.Subtests, new_pool: NewPool, clock: HeldClock
) -> None:
    for rate in filter(lambda rate: 1 <= rate <= 1000, RATES):
        with subtests.test(rate=rate):
            pool = await new_pool()
            pool.limits = {"t": Limit(rate)}
            chance = random.Random(rate)
            await fill(pool, int(4 * bound(rate)))
            begun, times = clock.now_us, list[int]()
            while clock.now_us < begun + 3 * SECOND_US:
                popped = await pool.pop(["t"], chance.choice([1, 1, 3, 100]))
                times += [job.lease for job in popped.jobs]
                gap = (
                    popped.limited[0].opens_us
                    if popped.limited and chance.random() < 0.7
                    else chance.randrange(5_000_000)
                )
                clock.now_us += gap if chance.random() < 0.9 else chance.randrange(int(2 * SECOND_US / rate) + 1)
            assert most_in_a_second(times) <= bound(rate)


@pytest.mark.parametrize("rate", [0.2, 3.0, 50.0, 1000.0])
async def test_who_comes_when_it_opens_gets_all_that_the_rate_allows(pool: Pool, clock: HeldClock, rate: float) -> None:
    pool.limits = {"t": Limit(rate)}
    await fill(pool, int(12 * rate) + 20)
    times: list[int] = []
    while len(times) < 10 * rate:
        popped = await pool.pop(["t"], 100)
        times += [job.lease for job in popped.jobs]
        clock.now_us += popped.limited[0].opens_us
    lasted_s = (times[-1] - times[0]) / 1e6
    assert len(times) / rate * 0.9 - 1 / rate <= lasted_s


@pytest.mark.parametrize("rate", [50.0, 1000.0])
async def test_a_pop_that_comes_a_little_late_loses_nothing(pool: Pool, clock: HeldClock, rate: float) -> None:
    """Each comes up to 8 ms late: the rate is reached all the same."""
    pool.limits = {"t": Limit(rate)}
    await fill(pool, int(4 * rate))
    chance, begun, jobs = random.Random(3), clock.now_us, 0
    while clock.now_us < begun + 3 * SECOND_US:
        popped = await pool.pop(["t"], 100)
        jobs += len(popped.jobs)
        clock.now_us += popped.limited[0].opens_us + chance.randrange(1000 if rate > 100 else 8000)
    assert jobs > 2.9 * rate


async def test_a_pop_tells_which_limit_keeps_jobs_back_and_when_it_opens(pool: Pool, clock: HeldClock) -> None:
    pool.limits = {"t": Limit(0.5)}
    await fill(pool, 3)
    first = await pool.pop(["t"])
    assert (len(first.jobs), first.left, opening(first)) == (1, 2, 1_990_000)
    clock.advance(500)
    second = await pool.pop(["t"], 5)
    assert second.ask_why and second.jobs == []
    assert opening(second) == 1_490_000
    clock.now_us += second.limited[0].opens_us - 2
    assert await pop(pool) == []
    clock.now_us += 2
    assert len(await pop(pool, count=5)) == 1


async def test_a_topic_that_has_nothing_ready_is_not_called_limited(pool: Pool) -> None:
    pool.limits = {"t": Limit(0.5)}
    await fill(pool, 1)
    assert [len((await pool.pop(["t"])).limited) for _ in range(2)] == [0, 0]


async def test_a_limited_topic_is_passed_over_for_the_next(pool: Pool, redis: Redis) -> None:
    pool.limits = {"t": Limit(0.5)}
    await fill(pool, 3)
    await fill(pool, 3, "u")
    popped = await pool.pop(["t", "u"], 3)
    assert [job.id for job in popped.jobs] == ["t00000", "u00000", "u00001"]
    assert await popped_ids(pool, "t", "u", count=1) == ["u00002"]
    assert await popped_ids(pool, "u", "t") == []
    await check_books(redis, pool)


async def test_by_priority_too(pool: Pool) -> None:
    pool.limits = {"t": Limit(0.5)}
    await fill(pool, 3, priority=9)
    await fill(pool, 3, "u", priority=4)
    await fill(pool, 1, "v", priority=9)
    popped = await pool.pop(["u", "t", "v"], 3, by_priority=True)
    assert [job.id for job in popped.jobs] == ["t00000", "v00000", "u00000"]


async def test_concurrent_pops_share_what_the_rate_allows(pool: Pool, live_pool: Pool) -> None:
    live_pool.limits = {"t": Limit(1000)}
    await fill(live_pool, 100)
    popped = await asyncio.gather(*(live_pool.pop(["t"]) for _ in range(100)))
    jobs = [job.lease for each in popped for job in each.jobs]
    assert 10 <= len(jobs) < 100 and most_in_a_second(jobs) <= bound(1000)
    assert all(each.limited for each in popped if not each.jobs)


async def test_a_job_that_is_too_large_for_an_answer_takes_no_permit(pool: Pool) -> None:
    pool.limits = {"t": Limit(0.999)}
    await add(pool, "small", "u")
    await add(pool, "large", body=b'"%b"' % (b"x" * 2000))
    assert [job.id for job in await pop(pool, "u", "t", count=2, room=1000)] == ["small"]
    assert [job.id for job in await pop(pool, "t")] == ["large"]


async def test_a_job_that_is_delivered_at_most_once_takes_a_permit(pool: Pool) -> None:
    pool.limits = {"t": Limit(0.5)}
    await fill(pool, 2, ttr_ms=0)
    assert len(await popped_ids(pool)) == 1
    assert await popped_ids(pool) == []


async def test_a_delivery_that_is_undone_keeps_its_permit(pool: Pool) -> None:
    """What Redis handed out counts, whoever received it: given back, the permit would be spent twice in a second."""
    pool.limits = {"t": Limit(0.5)}
    await fill(pool, 2)
    await pool.unpop(await pop(pool))
    assert await popped_ids(pool) == []


async def test_a_pop_of_one_id_asks_the_rate(pool: Pool, clock: HeldClock) -> None:
    pool.limits = {"other": Limit(1), "t": Limit(0.5)}
    for job_id in ("a", "b", "c"):
        await add(pool, job_id, delay_ms=60_000)
    taken = await pool.take("a")
    assert await is_stored(pool, taken)
    with pytest.raises(Limited) as refused:
        await pool.take("b")
    assert (refused.value.limit, refused.value.opens_us // 10) == ("rate", 199_000)
    assert await state(pool, "b") == "delayed"
    clock.advance(2000)
    assert (await pool.take("b")).id == "b"
    await add(pool, "free", "u")
    assert (await pool.take("free")).id == "free"


async def test_a_clock_that_goes_back_holds_no_topic_up_and_lets_no_burst_through(pool: Pool, clock: HeldClock) -> None:
    pool.limits = {"t": Limit(50)}
    await fill(pool, 60)
    await popped_ids(pool)
    clock.advance(-3_600_000)
    assert await popped_ids(pool) == []
    clock.advance(100)
    assert len(await popped_ids(pool)) == 1
    clock.advance(100)
    assert len(await popped_ids(pool)) == 1


async def test_a_clock_that_jumps_ahead_gives_no_more_than_a_full_bucket(pool: Pool, clock: HeldClock) -> None:
    pool.limits = {"t": Limit(1000)}
    await fill(pool, 60)
    await popped_ids(pool)
    clock.advance(3_600_000)
    assert len(await popped_ids(pool)) == int(Limit(1000).burst)


async def test_another_rate_holds_at_once(pool: Pool, clock: HeldClock) -> None:
    pool.limits = {"t": Limit(0.001)}
    await fill(pool, 60)
    await popped_ids(pool)
    pool.limits = {"t": Limit(50)}
    assert await popped_ids(pool) == []
    clock.advance(20)
    assert len(await popped_ids(pool)) == 1
    pool.limits = {}
    assert len(await popped_ids(pool)) == 58


async def test_the_key_of_a_rate_expires_once_it_says_nothing(redis: Redis, live_pool: Pool) -> None:
    live_pool.limits = {"t": Limit(50)}
    await fill(live_pool, 3)
    await popped_ids(live_pool)
    key = live_pool.keys[0].permits("t")
    assert 1000 < await redis.read("PTTL", key) <= 1021
    await redis.read("SET", key, "not a time")
    assert len(await popped_ids(live_pool)) == 1
    await redis.read("DEL", key)
    await redis.read("HSET", key, "another", "program")
    assert len(await popped_ids(live_pool)) == 1
