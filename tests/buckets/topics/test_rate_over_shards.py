"""The rate of a topic whose jobs are in several shards: one of them keeps its permits."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from buckets.clock import HeldClock
from buckets.errors import Limited
from buckets.job import NewJob
from buckets.keys import shard_of
from buckets.pool.limits import Limit
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from tests.buckets.jobs import add
from tests.buckets.topics.test_rate import bound, most_in_a_second
from tests.buckets.waiting.parked import hearing, park

SHARDS = 3


@pytest.fixture
async def many(redis: Redis, clock: HeldClock) -> AsyncIterator[Pool]:
    pool = await Pool.open(redis, shards=SHARDS, buckets=2, clock=clock)
    yield pool
    await pool.close()


async def fill(pool: Pool, jobs: int) -> None:
    await pool.add([NewJob(f"{n}", "t", b"1") for n in range(jobs)])


@pytest.mark.parametrize("count", [1, 7])
async def test_no_second_has_more_deliveries_in_all_shards_together(many: Pool, clock: HeldClock, count: int) -> None:
    many.limits = {"t": Limit(200)}
    await fill(many, 500)
    times: list[int] = []
    for _ in range(1500):
        times += [job.lease for job in (await many.pop(["t"], count)).jobs]
        clock.now_us += 1300
    assert most_in_a_second(times) <= bound(200)
    assert len(times) > 350  # of at most 392: a pop that is asked for more than it finds lets permits lapse


async def test_an_empty_pop_says_why_and_the_next_topic_is_asked(many: Pool, clock: HeldClock) -> None:
    many.limits = {"t": Limit(0.5)}
    await fill(many, 30)
    await add(many, "other", "u")
    assert [job.topic for job in (await many.pop(["t", "u"], 5)).jobs] == ["t", "u"]
    popped = await many.pop(["t", "u"], 5)
    assert [each[:2] for each in popped.limited] == [("t", "rate")]
    clock.now_us += popped.limited[0].opens_us
    assert len((await many.pop(["t", "u"], 5)).jobs) == 1


async def test_all_jobs_are_found_in_the_end(many: Pool, clock: HeldClock) -> None:
    many.limits = {"t": Limit(10)}
    await fill(many, 40)
    found: set[str] = set()
    for _ in range(60):
        found |= {job.id for job in (await many.pop(["t"])).jobs}
        clock.advance(100)
    assert len(found) == 40


async def test_permits_stand_in_the_shard_of_the_topic_alone(redis: Redis, many: Pool) -> None:
    many.limits = {"t": Limit(0.5)}
    await fill(many, 30)
    await many.pop(["t"])
    keys = [keys.permits("t") for keys in many.keys]
    assert [await redis.read("EXISTS", key) for key in keys] == [
        int(shard == shard_of("t", SHARDS)) for shard in range(SHARDS)
    ]


async def test_a_pop_of_one_id_takes_its_permit_there(many: Pool) -> None:
    many.limits = {"t": Limit(0.5)}
    await fill(many, 9)
    await many.take("3")
    for job_id in ("4", "5"):
        with pytest.raises(Limited, match="limit"):
            await many.take(job_id)
    await add(many, "free", "u")
    assert (await many.take("free")).id == "free"


async def test_waiting_pops_are_woken_when_permits_come(redis: Redis) -> None:
    pool = await Pool.open(redis, shards=SHARDS, buckets=2)
    pool.limits = {"t": Limit(50)}
    async with hearing(pool) as waiting:
        parked = [await park(waiting) for _ in range(30)]
        await fill(pool, 30)
        jobs = [(await each).jobs[0] for each in parked]
    assert most_in_a_second([job.lease for job in jobs]) <= bound(50)
    await pool.close()
