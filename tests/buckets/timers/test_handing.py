"""buckets.timers.timer: what falls due goes to the pops that sleep here, whoever comes and goes meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence

import pytest

from buckets.job import Job, NewJob
from buckets.pool.pool import Pool
from buckets.pool.sleepers import OFFERED, SLEEPING
from buckets.redis.client import Redis
from buckets.timers.timer import Awake, Timer
from buckets.waiting.waiting import Waiting
from tests.buckets.instances import Instance, ended
from tests.buckets.jobs import add, state
from tests.buckets.waiting.parked import LONG_S, asked, job_of, park
from tests.kit.redis_server import RedisServer
from tests.kit.waiting import PATIENCE_S, until

JOBS = 1_500
TOPICS = ("t", "u", "v")


class Process:
    """The timers and the waiting pops of one process."""

    def __init__(self, pool: Pool, share: float) -> None:
        self.pool = pool
        self.instance = Instance(pool)
        self.waiting = Waiting(pool, self.instance.notifier)
        awake = Awake(share)
        self.timers = [
            Timer(pool, self.waiting, locks, bucket, awake)
            for locks in self.instance.locks
            for bucket in range(pool.buckets)
        ]

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Process]:
        async with self.instance.running():
            await until(self.instance.notifier.connected.is_set)
            tasks = [asyncio.create_task(timer.run()) for timer in self.timers]
            try:
                yield self
            finally:
                await ended(tasks)
                self.waiting.close()
                await self.pool.close()


class Consumer:
    """Pops of all kinds, some of which are cancelled. What it gets is in `got`."""

    def __init__(self, waiting: Waiting, got: list[Job], seed: int) -> None:
        self._waiting = waiting
        self._got = got
        self._chance = random.Random(seed)

    async def run(self) -> None:
        while True:
            popping = asyncio.create_task(self._pop())
            try:
                if self._chance.random() < 0.3:
                    await asyncio.wait([popping], timeout=self._chance.random() * 0.02)
                    popping.cancel()
                await asyncio.wait([popping])
            finally:
                popping.cancel()

    async def _pop(self) -> None:
        topics = self._chance.sample(TOPICS, self._chance.choice((1, 1, 2, 3)))
        worker = self._chance.choice(("", "w1", "w2"))
        count = self._chance.choice((1, 1, 1, 5))
        wait_s = self._chance.choice((0.002, 0.02, 0.2, LONG_S))
        popped = await self._waiting.pop(topics, count, wait_s, worker=worker)
        self._got += popped.jobs  # on the turn of the answer: a cancellation does not come in between


async def leaving(waiting: Waiting) -> None:
    """A worker that leaves again and again, so that no wait is without end."""
    while True:
        for worker in ("w1", "w2"):
            await asyncio.sleep(0.01)
            await waiting.leave(worker)


async def checked(processes: Sequence[Process], jobs: int) -> None:
    """Let consumers work off jobs that fall due one after the other: each is handed out once, not before its time."""
    got: list[Job] = []
    chance = random.Random(7)
    pool = processes[0].pool
    for page in range(jobs // 100):  # a page goes to one bucket
        delays = [300 + chance.randrange(1_500) for _ in range(100)]
        await pool.add(
            [NewJob(f"{page}.{n}", chance.choice(TOPICS), b"", delay_ms=delay) for n, delay in enumerate(delays)]
        )
    consumers = [Consumer(each.waiting, got, seed) for seed in range(15) for each in processes]
    tasks = [asyncio.create_task(each.run()) for each in consumers]
    tasks += [asyncio.create_task(leaving(each.waiting)) for each in processes]
    try:
        await until(lambda: len(got) >= jobs, within_s=3 * PATIENCE_S)
    finally:
        await ended(tasks)
    assert set(Counter(job.id for job in got).values()) == {1}
    assert all(job.lease >= job.due * 1000 for job in got)
    assert {job.attempts for job in got} == {1}


@pytest.mark.parametrize("share", [0.0, 0.1, 1.0])
async def test_while_pops_come_and_go_no_job_is_lost_or_handed_out_twice_or_early(redis: Redis, share: float) -> None:
    async with Process(await Pool.open(redis), share).running() as process:
        await checked([process], JOBS)


async def test_the_same_with_two_processes(redis: Redis, redis_server: RedisServer) -> None:
    other = Redis(redis_server.url)
    async with (
        Process(await Pool.open(redis), 0.1).running() as first,
        Process(await Pool.open(other), 0.1).running() as second,
    ):
        await checked([first, second], JOBS)
    await other.close()


async def test_the_same_with_several_shards(redis: Redis) -> None:
    async with Process(await Pool.open(redis, "many", shards=3, buckets=2), 0.1).running() as process:
        await checked([process], JOBS)


@pytest.fixture
async def deaf(redis: Redis) -> AsyncIterator[Process]:
    """A process with one timer that runs, and that hears no message."""
    process = Process(await Pool.open(redis, "one", buckets=1), 0.1)
    await process.instance.tick()
    running = asyncio.create_task(process.timers[0].run())
    yield process
    await ended([running])
    process.waiting.close()
    await process.pool.close()


async def test_a_pop_that_sleeps_needs_no_ring(deaf: Process) -> None:
    parked = [await park(deaf.waiting, worker=f"w{n}") for n in range(4)]
    for n in range(4):
        await add(deaf.pool, str(n), delay_ms=20)
        deaf.instance.notifier.alarm(0, 0).set()
        assert (await job_of(parked[n])).id == str(n)


async def test_if_the_script_fails_those_who_sleep_get_their_jobs_later(deaf: Process, redis: Redis) -> None:
    parked = await park(deaf.waiting)
    await add(deaf.pool, "a", delay_ms=1)
    await redis.read("ACL", "SETUSER", "default", "-zrange")
    try:
        failed = deaf.timers[0]._outage
        deaf.instance.notifier.alarm(0, 0).set()
        await until(lambda: failed.is_on or parked.done())
    finally:
        await redis.read("ACL", "SETUSER", "default", "+@all")
    assert (await job_of(parked)).id == "a"


async def test_a_timer_that_stops_while_it_hands_out_a_job_gives_it_back(own_server: RedisServer) -> None:
    redis = Redis(own_server.url)
    process = Process(await Pool.open(redis, "one", buckets=1), 0.1)
    await process.instance.tick()
    await process.timers[0].tick()  # now Redis knows the script
    parked = await park(process.waiting)
    await add(process.pool, "a", delay_ms=1)
    await asyncio.sleep(0.01)  # it is due
    own_server.freeze()
    ticking = asyncio.create_task(process.timers[0].run())
    await asked(redis)
    await ended([ticking])
    own_server.thaw()
    await until(lambda: is_ready(process.pool))
    process.instance.notifier.hear(0, "ready 1 t")
    assert (await job_of(parked)).attempts == 1
    await process.pool.close()
    await redis.close()


async def test_a_redis_that_is_silent_keeps_no_pop_for_a_timer(own_server: RedisServer) -> None:
    """What its script hands out all the same goes to one that sleeps then, or back."""
    redis = Redis(own_server.url)
    process = Process(await Pool.open(redis, "one", buckets=1), 0.1)
    await process.instance.tick()
    await process.timers[0].tick()
    leaving, staying = await park(process.waiting, worker="leaving"), await park(process.waiting, worker="staying")
    for job_id in "ab":
        await add(process.pool, job_id, delay_ms=1)
    await asyncio.sleep(0.01)  # they are due
    own_server.freeze()
    ticking = asyncio.create_task(process.timers[0].tick())
    await asked(redis)
    (waiter,) = process.waiting._of_worker["leaving"]
    assert waiter.state == OFFERED
    await until(lambda: waiter.state == SLEEPING, within_s=redis.timeout_s / 2)
    process.waiting.cancel(waiter)
    leaving.cancel()
    own_server.thaw()
    await ticking
    process.instance.notifier.hear(0, "ready 1 t")
    assert (await job_of(staying)).attempts == 1
    await process.pool.close()
    assert sorted([await state(process.pool, "a"), await state(process.pool, "b")]) == ["ready", "reserved"]
    await redis.close()


async def is_ready(pool: Pool) -> bool:
    return await state(pool, "a") == "ready"
