"""Pops that wait for a topic that has reached a limit: they are woken when it opens, and do not look in vain."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from buckets.clock import SteppedClock
from buckets.job import NewJob
from buckets.pool.limits import Limit
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from buckets.timers.held_time import HeldTime, QueuedPool
from buckets.waiting.waiting import Waiting
from tests.buckets.jobs import add, finish, pop, popped_ids
from tests.buckets.schedules.scheduled import plan
from tests.buckets.topics.test_rate import bound, most_in_a_second
from tests.buckets.waiting.parked import hearing, park
from tests.buckets.waiting.test_waiting import scripts_run
from tests.kit.waiting import PATIENCE_S, until


@pytest.fixture
async def live(live_pool: Pool) -> AsyncIterator[Waiting]:
    """Waiting pops on Redis's own clock."""
    async with hearing(live_pool) as waiting:
        yield waiting


async def fill(pool: Pool, jobs: int, topic: str = "t") -> None:
    await pool.add([NewJob(f"{topic}{n}", topic, b"1") for n in range(jobs)])


async def test_waiting_pops_are_served_as_the_rate_allows(redis: Redis, live: Waiting, live_pool: Pool) -> None:
    """One timer for all of them: two scripts a delivery, and not one for each that waits."""
    live_pool.limits = {"t": Limit(50)}
    parked = [await park(live) for _ in range(60)]
    await redis.read("CONFIG", "RESETSTAT")
    begun = time.monotonic()
    await fill(live_pool, 60)
    async with asyncio.timeout(PATIENCE_S):
        jobs = [(await each).jobs[0] for each in parked[:40]]
    lasted = time.monotonic() - begun
    assert most_in_a_second([job.lease for job in jobs]) <= bound(50)
    assert lasted >= 0.7
    assert await scripts_run(redis) < 4 * 40


async def test_a_fast_topic_hands_out_several_at_a_time(redis: Redis, live: Waiting, live_pool: Pool) -> None:
    live_pool.limits = {"t": Limit(1000)}
    parked = [await park(live) for _ in range(300)]
    await fill(live_pool, 300)
    async with asyncio.timeout(PATIENCE_S):
        jobs = [(await each).jobs[0] for each in parked]
    assert most_in_a_second([job.lease for job in jobs]) <= bound(1000)


async def test_a_waiting_pop_is_woken_when_a_place_is_free(
    live: Waiting, live_pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "_ring_at", lambda *_: None)  # the bell alone wakes them, and no second look
    live_pool.limits = {"t": Limit(concurrency=2)}
    await fill(live_pool, 6)
    held = await pop(live_pool, count=2)
    parked = [await park(live) for _ in range(3)]
    for job in held:
        await finish(live_pool, job.id)
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.wait(parked, return_when=asyncio.FIRST_COMPLETED)
        await until(lambda: sum(each.done() for each in parked) == 2)
    assert await popped_ids(live_pool) == []


async def test_who_waits_does_not_spin(redis: Redis, live: Waiting, live_pool: Pool) -> None:
    live_pool.limits = {"t": Limit(concurrency=1), "u": Limit(0.01)}
    await fill(live_pool, 3)
    await fill(live_pool, 3, "u")
    await pop(live_pool, "t")
    await pop(live_pool, "u")
    parked = [await park(live, topics) for topics in [("t",)] * 50 + [("t", "u")] * 50]
    await redis.read("CONFIG", "RESETSTAT")
    await asyncio.sleep(1.2)
    assert await scripts_run(redis) <= 6
    assert not any(each.done() for each in parked)


async def test_a_place_that_nobody_tells_of_is_found_within_a_second(live: Waiting, live_pool: Pool) -> None:
    """As one that was taken before the topic had the limit."""
    await fill(live_pool, 2)
    await pop(live_pool)
    live_pool.limits = {"t": Limit(concurrency=1)}
    parked = await park(live)
    await finish(live_pool, "t0")
    async with asyncio.timeout(PATIENCE_S):
        assert [job.id for job in (await parked).jobs] == ["t1"]


async def test_a_due_job_of_a_limited_topic_is_not_handed_straight_to_who_waits(live: Waiting, live_pool: Pool) -> None:
    live_pool.limits = {"t": Limit(concurrency=1)}
    parked = [await park(live), await park(live, ("u", "t")), await park(live, ("u",))]
    assert [offer.topics for offer in live.sleepers(10)] == [("u",)]
    await add(live_pool, "a")
    await add(live_pool, "b")
    async with asyncio.timeout(PATIENCE_S):
        await parked[0]
    live_pool.limits = {}
    assert [offer.topics for offer in live.sleepers(10)] == [("u", "t")]


async def test_an_advance_of_a_held_clock_opens_the_rate(redis: Redis) -> None:
    pool = QueuedPool(redis, "jq", 1, 8, SteppedClock())
    await pool.ensure_meta(0)
    pool.limits = {"t": Limit(0.5)}
    async with hearing(pool) as waiting:
        held = HeldTime(pool, waiting, [], plan)
        await fill(pool, 3)
        await pop(pool)
        parked = await park(waiting)
        assert not waiting._openings
        await held.advance(1000)
        assert not parked.done()
        await held.advance(1000)
        async with asyncio.timeout(PATIENCE_S):
            assert len((await parked).jobs) == 1
    await pool.close()
