"""Service processes that share the timers of one namespace while some start, stop, are killed or are frozen."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack

import pytest

from buckets import Pool, Redis
from tests.acceptance.load import Load
from tests.acceptance.test_metrics import told
from tests.kit.redis_server import RedisServer
from tests.kit.service import Client, ServiceProcess
from tests.kit.waiting import until

BUCKETS = 8


@pytest.fixture
async def three(redis_server: RedisServer, redis: Redis) -> AsyncIterator[list[ServiceProcess]]:
    """Three services that share the timers."""
    async with AsyncExitStack() as stack:
        services = [ServiceProcess("--redis", redis_server.url) for _ in range(3)]
        await asyncio.gather(*(stack.enter_async_context(service) for service in services))
        await until(lambda: is_shared(redis, services))
        yield services


async def owners(redis: Redis) -> Counter[bytes | None]:
    return Counter(await redis.read("MGET", *(f"{{jq:0}}:lock:{number}" for number in range(BUCKETS))))


async def is_shared(redis: Redis, services: Sequence[ServiceProcess]) -> bool:
    """Whether each of the services has its share of the timers, in Redis and by its own account."""
    number = len(services)
    shares = [len(range(each, BUCKETS, number)) for each in range(number)]
    held = [(await told(service.url))["jobqueue_locks_held",] for service in services]
    known = {(await told(service.url))["jobqueue_instances",] for service in services}
    counts = await owners(redis)
    return sorted(held) == sorted(shares) == sorted(counts.values()) and None not in counts and known == {number}


async def spread(client: Client, jobs: int, delay_s: float) -> None:
    """Add jobs due at one moment, some to each bucket; the jobs of one request go into one bucket."""
    for number in range(jobs):
        await client.ask("add", topic="t", delay=delay_s, body=number)


async def pop_all(client: Client, jobs: int) -> list[str]:
    """Pop and finish that many jobs."""
    ids: list[str] = []
    while len(ids) < jobs:
        for job in (await client.ask("pop", topic="t", count=100, wait=10))["jobs"]:
            assert job["lease"] / 1e6 >= job["due"]
            assert job["attempt"] == 1
            ids.append(job["id"])
            await client.ask("finish", id=job["id"], lease=job["lease"])
    return ids


async def test_instances_that_come_stop_or_are_killed_share_the_timers_with_those_that_stay(
    three: list[ServiceProcess], redis: Redis, redis_server: RedisServer
) -> None:
    async with ServiceProcess("--redis", redis_server.url) as fourth:
        await until(lambda: is_shared(redis, [*three, fourth]))
        assert await fourth.stop() == 0
        counts = await owners(redis)  # the timers of one that stops in order go on elsewhere at once
        assert await redis.read("ZCARD", "{jq:0}:roll") == 3
        assert len(counts.keys() - {None}) == 3
    await until(lambda: is_shared(redis, three))
    killed, *others = three
    async with Client(others[0].url) as client:
        await spread(client, 5 * BUCKETS, 0.3)
        await killed.kill()
        assert len(set(await pop_all(client, 5 * BUCKETS))) == 5 * BUCKETS
    await until(lambda: is_shared(redis, others))


async def test_one_that_stood_still_moves_no_job_twice_and_gets_its_part_back(
    three: list[ServiceProcess], redis: Redis
) -> None:
    """It wakes up and still trusts its locks, while others hold them and jobs fall due."""
    paused, *others = three
    jobs = 5 * BUCKETS
    async with Client(others[0].url) as client:
        for turn in range(3):
            await spread(client, jobs, 0.7)
            paused.signal(signal.SIGSTOP)
            await until(lambda: is_shared(redis, others))
            paused.signal(signal.SIGCONT)
            assert len(set(await pop_all(client, jobs))) == jobs
            await until(lambda: is_shared(redis, three))
            totals = (await client.ask("stats", topic="t"))["totals"]
            assert totals == dict.fromkeys(("created", "delivered", "finished"), jobs * (turn + 1))
    moves = [(await told(service.url))["jobqueue_timer_moves_total",] for service in three]
    assert sum(moves) == 3 * jobs


async def test_jobs_go_on_while_instances_stand_still_are_killed_and_come(
    three: list[ServiceProcess], redis: Redis, redis_server: RedisServer
) -> None:
    load = Load([service.url for service in three], longest_delay_s=1.0)
    async with load.running():
        for turn in range(4):
            service = three[turn % 3]
            if turn % 2:
                service.signal(signal.SIGSTOP)
                await asyncio.sleep(0.8)
                service.signal(signal.SIGCONT)
            else:
                await service.kill()
                three[turn % 3] = await ServiceProcess("--redis", redis_server.url, port=service.port).start()
    load.check()
    await until(lambda: is_shared(redis, three))
    for service in three:
        await service.stop()


async def test_more_instances_than_timers_are_all_ready(redis: Redis, redis_server: RedisServer) -> None:
    await (await Pool.open(redis, buckets=1)).close()
    flags = ("--redis", redis_server.url)
    async with ServiceProcess(*flags) as first, ServiceProcess(*flags) as second:

        async def is_held_once() -> bool:  # it may change hands while the two are asked
            return sum([(await told(service.url))["jobqueue_locks_held",] for service in (first, second)]) == 1

        await until(is_held_once)
        async with Client(first.url) as one, Client(second.url) as other:
            for client in (one, other):
                added = await client.ask("add", topic="t", delay=0.05, body=1)
                assert (await client.ask("pop", topic="t", wait=10))["id"] == added["id"]
