"""buckets.waiting: waiting pops are woken, first come, first served, and none is forgotten."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from buckets.clock import HeldClock
from buckets.errors import JobQueueError
from buckets.job import NewJob
from buckets.pool.pool import Pool
from buckets.pool.pop_search import Popped, ask_for
from buckets.pool.sleepers import Waiter
from buckets.redis.client import Redis
from buckets.topics.topics import Topics
from buckets.waiting import waiting as module
from buckets.waiting.notifier import Notifier
from buckets.waiting.waiting import Waiting
from tests.buckets.jobs import add, pop, pop_one
from tests.buckets.waiting.parked import LONG_S, Parked, asked, job_of, jobs_of, park, waiting_on
from tests.kit.redis_server import RedisServer
from tests.kit.waiting import PATIENCE_S, tick_all, until


async def job_ids(parked: Parked) -> list[str]:
    return [job.id for job in await jobs_of(parked)]


async def by_add(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a")


async def by_replace(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", delay_ms=60_000)
    await add(pool, "a", if_exists="replace")


async def by_delay(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", delay_ms=60_000)
    clock.advance(60_000)
    await tick_all(pool)


async def by_run(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", delay_ms=60_000)
    await pool.run("a")


async def by_update(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", delay_ms=60_000)
    await pool.update("a", delay_ms=0)


async def by_ttr(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", "elsewhere", ttr_ms=1_000)
    await pop_one(pool, "elsewhere")
    clock.advance(1_000)
    await tick_all(pool)


async def by_release(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", "elsewhere")
    await pool.release("a", (await pop_one(pool, "elsewhere")).lease, delay_ms=0)


async def by_kick(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", "elsewhere")
    await pool.bury("a", (await pop_one(pool, "elsewhere")).lease)
    await pool.kick(["a"])


async def by_unpop(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", "elsewhere")
    await pool.unpop(await pop(pool, "elsewhere"))


@pytest.mark.parametrize("way", [by_add, by_replace, by_delay, by_run, by_update])
async def test_a_waiting_pop_gets_what_becomes_ready(
    waiting: Waiting, pool: Pool, clock: HeldClock, way: Callable[[Pool, HeldClock], Awaitable[None]]
) -> None:
    parked = await park(waiting)
    await way(pool, clock)
    assert (await job_of(parked)).attempts == 1
    assert waiting.parked == 0


@pytest.mark.parametrize("way", [by_ttr, by_release, by_kick, by_unpop])
async def test_a_waiting_pop_gets_what_comes_back(
    redis: Redis, deaf: Waiting, pool: Pool, clock: HeldClock, way: Callable[[Pool, HeldClock], Awaitable[None]]
) -> None:
    """The messages that the scripts publish, one by one."""
    heard: list[str] = []
    ready = asyncio.Event()
    listening = asyncio.create_task(pool.redis.listen(pool.keys[0].bell, heard.append, ready.set))
    await ready.wait()
    await way(pool, clock)
    await until(lambda: heard.count("ready 1 elsewhere") == 2)  # when it was added, and when it came back
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)


async def test_who_came_first_is_served_first(waiting: Waiting, pool: Pool) -> None:
    parked = [await park(waiting) for _ in range(5)]
    for n, waiter in enumerate(parked):
        await add(pool, str(n))
        assert (await job_of(waiter)).id == str(n)
        assert [other.done() for other in parked] == [True] * (n + 1) + [False] * (4 - n)


async def test_as_many_are_woken_as_there_are_jobs(
    redis: Redis, waiting: Waiting, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """200 pops wait and 40 jobs come: far fewer than 200 look, and those that do, look together."""
    parked = [await park(waiting) for _ in range(200)]
    looks, look = [0], pool.look

    def counted(*args: Any, **options: Any) -> Any:
        looks[0] += 1
        return look(*args, **options)

    monkeypatch.setattr(pool, "look", counted)
    await redis.read("CONFIG", "RESETSTAT")
    await pool.add([NewJob(str(n), "t", b"") for n in range(40)])
    for waiter in parked[:40]:
        await job_of(waiter)
    assert not any(waiter.done() for waiter in parked[40:])
    assert await scripts_run(redis) <= 6  # the add, the pop of those woken, and a few in vain
    assert 40 <= looks[0] <= 44


async def scripts_run(redis: Redis) -> int:
    """How many scripts Redis ran, including those of waiters that the answers woke."""
    for _ in range(10):
        await redis.read("PING")
    said = (await redis.read("INFO", "commandstats")).decode()
    return int(said.split("cmdstat_evalsha:calls=")[1].partition(",")[0])


async def test_who_is_woken_in_vain_looks_once_and_waits_again(redis: Redis, deaf: Waiting, pool: Pool) -> None:
    parked = await park(deaf)
    await redis.read("CONFIG", "RESETSTAT")
    deaf.notifier.hear(0, "ready 1 t")
    assert await scripts_run(redis) == 1
    await add(pool, "a")
    deaf.notifier.hear(0, "ready 1 t")
    assert (await job_of(parked)).id == "a"


async def test_jobs_that_come_one_by_one_wake_all_that_wait(waiting: Waiting, pool: Pool) -> None:
    """The bell rings only for the first job; each waiter that gets one wakes the next."""
    parked = [await park(waiting) for _ in range(30)]
    await asyncio.gather(*(add(pool, str(n), priority=n % 10) for n in range(30)))
    assert {(await job_of(waiter)).id for waiter in parked} == {str(n) for n in range(30)}


class Counting(Waiting):
    """Counts how often some pop is told to look."""

    calls = 0

    def _call(self, waiter: Waiter) -> None:
        self.calls += 1
        super()._call(waiter)


async def test_pops_that_are_answered_together_pass_on_once_what_they_leave(pool: Pool) -> None:
    """Else a thousand of them would wake a thousand others each."""
    waiting = Counting(pool, Notifier(pool))
    told: list[Popped | JobQueueError] = []
    for _ in range(400):
        waiting.begin(ask_for(["t"]), 1, LONG_S, told.append)
    await until(lambda: waiting.parked == 400)
    await Topics(pool).stats()
    await pool.add([NewJob(str(n), "t", b"") for n in range(500)])
    waiting.notifier.hear(0, "ready 200 t")
    await until(lambda: len(told) == 400)
    jobs = [job.id for each in told if isinstance(each, Popped) for job in each.jobs]
    assert len(set(jobs)) == 400
    assert waiting.calls < 4 * 400


async def test_a_waiting_pop_of_many_takes_all_that_is_there(waiting: Waiting, pool: Pool) -> None:
    parked = await park(waiting, count=10)
    await pool.add([NewJob(str(n), "t", b"") for n in range(3)])
    async with asyncio.timeout(PATIENCE_S):
        assert len((await parked).jobs) == 3


async def test_jobs_that_are_there_already_are_not_waited_for(deaf: Waiting, pool: Pool) -> None:
    await add(pool, "a")
    assert [job.id for job in (await deaf.pop(["t"], 1, LONG_S)).jobs] == ["a"]


async def test_a_wait_ends_empty_when_nothing_comes(waiting: Waiting) -> None:
    assert (await waiting.pop(["t", "u"], 1, 0.01)).jobs == []
    assert (await waiting.pop(["t", "u"], 1, 0)).jobs == []
    assert waiting.parked == 0


async def test_a_job_whose_message_was_lost_is_found_at_the_end_of_the_wait(deaf: Waiting, pool: Pool) -> None:
    parked = await park(deaf, wait_s=0.3)
    await add(pool, "a")
    assert (await job_of(parked)).id == "a"


async def test_what_was_said_while_the_subscription_was_broken_is_looked_for(
    redis: Redis, waiting: Waiting, pool: Pool
) -> None:
    parked = [await park(waiting) for _ in range(3)]
    await asyncio.gather(redis.read("CLIENT", "KILL", "TYPE", "pubsub"), *(add(pool, f"{n}") for n in range(3)))
    for waiter in parked:
        await job_of(waiter)


async def test_a_waiter_that_is_cancelled_while_it_waits_takes_no_job(waiting: Waiting, pool: Pool) -> None:
    first, second = await park(waiting), await park(waiting)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    await add(pool, "a")
    assert (await job_of(second)).attempts == 1


async def test_a_waiter_that_is_cancelled_when_it_is_woken_wakes_the_next(deaf: Waiting, pool: Pool) -> None:
    first, second = await park(deaf), await park(deaf)
    await add(pool, "a")
    deaf.notifier.hear(0, "ready 1 t")
    first.cancel()
    assert (await job_of(second)).attempts == 1
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_a_waiter_that_is_cancelled_with_a_job_on_its_way_wakes_the_next(own_server: RedisServer) -> None:
    """Its client hung up: another waiter gets the other job, and its own job goes back with its attempts as before."""
    redis = Redis(own_server.url)
    pool = await Pool.open(redis)
    waiting = waiting_on(pool)
    first, second = await park(waiting), await park(waiting)
    await pool.add([NewJob("a", "t", b""), NewJob("b", "t", b"")])
    own_server.freeze()
    waiting.notifier.hear(0, "ready 1 t")
    await asked(redis)  # by the first waiter
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    own_server.thaw()
    assert (await job_of(second)).attempts == 1
    await pool.close()
    assert (await pop_one(pool)).attempts == 1
    assert (await Topics(pool).stats("t")).totals["delivered"] == 2
    await redis.close()


async def test_a_waiter_of_two_topics_does_not_keep_the_ring_of_the_other_one(deaf: Waiting, pool: Pool) -> None:
    """It is woken for a job of one topic and takes one of the other: another waiter must get the first."""
    both, one = await park(deaf, ["t", "u"]), await park(deaf, ["u"])
    await add(pool, "a", "t")
    await add(pool, "b", "u")
    deaf.notifier.hear(0, "ready 1 u")
    assert (await job_of(both)).id == "a"
    assert (await job_of(one)).id == "b"


async def test_jobs_of_several_shards_reach_all_that_wait(redis: Redis) -> None:
    pool = await Pool.open(redis, "many", shards=3)
    waiting = waiting_on(pool)
    hearing = asyncio.create_task(waiting.notifier.run())
    await until(waiting.notifier.connected.is_set)
    for turn in range(5):
        parked = [await park(waiting) for _ in range(12)]
        await asyncio.gather(*(add(pool, f"{turn}.{n}", ttr_ms=0) for n in range(12)))
        assert {(await job_of(waiter)).id for waiter in parked} == {f"{turn}.{n}" for n in range(12)}
    hearing.cancel()
    await asyncio.gather(hearing, return_exceptions=True)


async def test_two_processes_share_the_jobs_and_leave_none(redis: Redis, redis_server: RedisServer) -> None:
    pool = await Pool.open(redis)
    other_redis = Redis(redis_server.url)
    both = [waiting_on(pool), waiting_on(await Pool.open(other_redis))]
    hearing = [asyncio.create_task(waiting.notifier.run()) for waiting in both]
    for waiting in both:
        await until(waiting.notifier.connected.is_set)
    parked = [await park(waiting) for waiting in both * 10]
    for n in range(20):
        await add(pool, str(n))
    assert {(await job_of(waiter)).id for waiter in parked} == {str(n) for n in range(20)}
    for task in hearing:
        task.cancel()
    await asyncio.gather(*hearing, return_exceptions=True)
    await other_redis.close()


async def test_waiting_costs_no_connections(redis: Redis, waiting: Waiting) -> None:
    before = len((await redis.read("CLIENT", "LIST")).splitlines())
    parked = [asyncio.create_task(waiting.pop(["t", "u"], 1, LONG_S)) for _ in range(1_000)]
    await until(lambda: waiting.parked == 1_000)
    assert len((await redis.read("CLIENT", "LIST")).splitlines()) == before
    waiting.close()
    async with asyncio.timeout(PATIENCE_S):
        assert [popped.jobs for popped in await asyncio.gather(*parked)] == [[]] * 1_000
    assert waiting.parked == 0


async def test_a_closed_process_looks_once_and_lets_nobody_wait(deaf: Waiting, pool: Pool) -> None:
    await add(pool, "a")
    deaf.close()
    assert [job.id for job in (await deaf.pop(["t"], 1, LONG_S)).jobs] == ["a"]
    assert (await deaf.pop(["t"], 1, LONG_S)).jobs == []


async def test_what_is_given_back_wakes_who_waits(waiting: Waiting, pool: Pool) -> None:
    await add(pool, "a")
    jobs = await pop(pool)
    parked = await park(waiting)
    await pool.unpop(jobs)
    assert (await job_of(parked)).attempts == 1


@pytest.mark.parametrize("wait_s", [math.inf, 100_000.0])
async def test_a_long_wait_looks_again_from_time_to_time_and_goes_on(
    deaf: Waiting, pool: Pool, monkeypatch: pytest.MonkeyPatch, wait_s: float
) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.02)
    parked = [await park(deaf, wait_s=wait_s) for _ in range(2)]
    await asyncio.sleep(0.1)
    assert not any(each.done() for each in parked)
    await add(pool, "a")  # no message of it arrives
    async with asyncio.timeout(PATIENCE_S):
        done, others = await asyncio.wait(parked, return_when=asyncio.FIRST_COMPLETED)
    assert [job.id for each in done for job in (await each).jobs] == ["a"]
    deaf.close()
    assert [await job_ids(each) for each in others] == [[]]


async def test_a_wait_of_several_looks_ends_when_its_time_is_over(
    deaf: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.02)
    loop = asyncio.get_running_loop()
    begun = loop.time()
    assert await job_ids(await park(deaf, wait_s=0.15)) == []
    assert loop.time() - begun >= 0.15


async def test_a_long_wait_ends_at_once_when_its_worker_leaves(deaf: Waiting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.02)
    parked = await park(deaf, wait_s=math.inf, worker="w")
    await asyncio.sleep(0.05)
    await deaf.leave("w")
    assert await job_ids(parked) == []
    assert deaf.parked == 0


async def test_a_long_wait_outlasts_a_redis_that_is_away_meanwhile(
    own_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.02)
    redis = Redis(own_server.url, timeout_s=1.0)
    pool = await Pool.open(redis)
    waiting = Waiting(pool, Notifier(pool))
    parked = await park(waiting, wait_s=math.inf)
    own_server.freeze()
    await asyncio.sleep(1.5)  # its looks get no answer
    assert not parked.done()
    own_server.thaw()
    await add(pool, "a")
    assert await job_ids(parked) == ["a"]
    await pool.close()
    await redis.close()
