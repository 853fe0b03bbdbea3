"""buckets.timers.timer: moves what is due, and sleeps until something is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from buckets.clock import HeldClock
from buckets.job import NewJob
from buckets.pool.pool import PAGE, Pool
from buckets.redis.client import Redis
from buckets.timers.members import sign_out
from buckets.timers.timer import Awake, Timer
from buckets.topics.topics import Topics
from buckets.waiting.waiting import Waiting
from tests.buckets.instances import Instance, give_up, sign, take
from tests.buckets.jobs import add, popped_ids, state
from tests.kit.waiting import PATIENCE_S, until


async def one_bucket(redis: Redis, clock: HeldClock | None = None) -> Pool:
    return await Pool.open(redis, "one", buckets=1, clock=clock)


def timer_of(pool: Pool) -> Timer:
    instance = Instance(pool)
    return Timer(pool, Waiting(pool, instance.notifier), instance.locks[0], 0, Awake(0))


class Running:
    """The timer of a one-bucket pool on Redis's own clock, as it runs in the service."""

    def __init__(self, pool: Pool, share: float = 0.1) -> None:
        self.pool = pool
        self.instance = Instance(pool)
        self.notifier = self.instance.notifier
        self.waiting = Waiting(pool, self.notifier)
        self.timer = Timer(pool, self.waiting, self.instance.locks[0], 0, Awake(share))
        self.tasks = [asyncio.create_task(self.notifier.run()), asyncio.create_task(self.timer.run())]

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


@pytest.fixture
async def running(redis: Redis) -> AsyncIterator[Running]:
    running = Running(await one_bucket(redis))
    await until(running.notifier.connected.is_set)
    await running.instance.tick()
    yield running
    await running.stop()


async def test_a_tick_says_how_long_nothing_is_due(redis: Redis, clock: HeldClock) -> None:
    pool = await one_bucket(redis, clock)
    timer = timer_of(pool)
    assert await timer.tick() == 10.0  # an empty bucket: it looks again from time to time all the same
    await add(pool, "far", delay_ms=60_000)
    assert await timer.tick() == 10.0
    await add(pool, "near", delay_ms=1_500)
    assert await timer.tick() == 1.5
    clock.now_us += 1_499_999
    assert await timer.tick() == 1e-6
    clock.now_us += 1
    assert await timer.tick() == 10.0
    assert await popped_ids(pool) == ["near"]


async def test_a_tick_moves_a_page_and_asks_to_go_on(redis: Redis, clock: HeldClock) -> None:
    pool = await one_bucket(redis, clock)
    await pool.add([NewJob(str(n), "t", b"", delay_ms=1) for n in range(PAGE + 1)])
    clock.advance(1)
    timer = timer_of(pool)
    assert [await timer.tick(), await timer.tick()] == [0, 10.0]
    assert (await Topics(pool).stats("t")).counts["ready"] == PAGE + 1


async def test_jobs_are_handed_out_after_they_are_due_and_never_before(running: Running) -> None:
    pool = running.pool
    jobs = [NewJob(str(n), "t", b"", delay_ms=n * 7 % 200 + 1) for n in range(100)]
    await pool.add(jobs)
    async with asyncio.timeout(PATIENCE_S):
        popped = [(await running.waiting.pop(["t"], 1, PATIENCE_S)).jobs[0] for _ in jobs]
    assert {job.id for job in popped} == {job.id for job in jobs}
    assert all(job.lease >= job.due * 1000 for job in popped)
    assert [job.due for job in popped] == sorted(job.due for job in popped)


async def test_the_bell_wakes_a_timer_that_sleeps_for_something_later(running: Running) -> None:
    await add(running.pool, "later", delay_ms=600_000)
    await until(lambda: asleep(running))
    await add(running.pool, "sooner", delay_ms=20)
    await until(lambda: is_in(running.pool, "sooner", "ready"))
    assert await state(running.pool, "later") == "delayed"


async def asleep(running: Running) -> bool:
    """It has heard of everything there is, and ticked."""
    return not running.notifier.alarm(0, 0).is_set()


async def is_in(pool: Pool, job_id: str, word: str) -> bool:
    return await state(pool, job_id) == word


async def test_a_lease_that_ends_brings_the_job_back(running: Running) -> None:
    await add(running.pool, "a", ttr_ms=100)
    assert await popped_ids(running.pool) == ["a"]
    async with asyncio.timeout(PATIENCE_S):
        (job,) = (await running.waiting.pop(["t"], 1, PATIENCE_S)).jobs
    assert job.attempts == 2


async def test_a_timer_without_its_lock_stands_still(redis: Redis) -> None:
    pool = await one_bucket(redis)
    running = Running(pool)
    await until(running.notifier.connected.is_set)
    await sign(pool, "another process")
    await take(pool, "another process")
    await running.instance.tick()
    await add(pool, "a", delay_ms=1)
    await until(lambda: is_due(pool, redis))
    assert await state(pool, "a") == "delayed"
    await sign_out(pool, "another process")
    await give_up(pool, "another process")
    await running.instance.tick()
    await until(lambda: is_in(pool, "a", "ready"))
    await running.stop()


async def is_due(pool: Pool, redis: Redis) -> bool:
    seconds, us = map(int, await redis.read("TIME"))
    job = await pool.get("a")
    return job is not None and job.due < seconds * 1000 + us // 1000 - 20


async def test_a_timer_survives_what_its_script_says(
    redis: Redis, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    await redis.read("ACL", "SETUSER", "default", "-zrange")
    try:
        running.notifier.alarm(0, 0).set()
        await until(lambda: not {"timer.failed", "timer.broke"}.isdisjoint(caplog.messages))
    finally:
        await redis.read("ACL", "SETUSER", "default", "+@all")
    await add(running.pool, "a", delay_ms=1)
    await until(lambda: is_in(running.pool, "a", "ready"))
