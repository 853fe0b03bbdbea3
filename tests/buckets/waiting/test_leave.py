"""buckets.waiting: the waiting pops of a leaving worker end at once, and the jobs that woke them are not forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from buckets.job import NewJob
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from buckets.topics.topics import Topics
from buckets.waiting.waiting import Waiting
from tests.buckets.jobs import add
from tests.buckets.waiting.parked import LONG_S, asked, caught_up, hearing, job_of, jobs_of, park, waiting_on
from tests.kit.redis_server import RedisServer
from tests.kit.waiting import PATIENCE_S, until


@pytest.fixture
async def other(pool: Pool) -> AsyncIterator[Waiting]:
    """The waiting pops of another process."""
    async with hearing(pool) as waiting:
        yield waiting


async def test_the_waiting_pops_of_a_worker_end_at_once_in_all_processes_and_those_of_others_wait_on(
    waiting: Waiting, other: Waiting, pool: Pool
) -> None:
    leaving = [await park(each, topics, worker="w") for each in (waiting, other) for topics in (["t"], ["u", "t"])]
    staying = [await park(each, worker=name) for each in (waiting, other) for name in ("", "w2")]
    await waiting.leave("w")
    assert [await jobs_of(parked) for parked in leaving] == [[]] * 4
    await caught_up(waiting, pool)
    await caught_up(other, pool)
    assert waiting.parked == other.parked == 2
    for number in range(4):
        await add(pool, str(number), ttr_ms=0)
    assert {(await job_of(parked)).id for parked in staying} == {"0", "1", "2", "3"}


async def test_a_name_may_have_spaces_and_any_characters(
    subtests: pytest.Subtests, waiting: Waiting, other: Waiting, pool: Pool
) -> None:
    cases: list[str] = ["web 1:412:9f3a", " ", " w", "w ", "w\n", "\x00", "leave w", "*", "ü\u202e😀", "ü" * 128]
    for name in cases:
        with subtests.test(name=name):
            parked, stays = await park(waiting, worker=name), await park(waiting, worker=name[:-1] + "x")
            await other.leave(name)
            assert await jobs_of(parked) == []
            await caught_up(waiting, pool)
            assert not stays.done()


async def test_a_worker_without_waiting_pops_is_no_error_and_its_later_pops_wait(waiting: Waiting, pool: Pool) -> None:
    await waiting.leave("w")
    await caught_up(waiting, pool)
    parked = await park(waiting, worker="w")
    await add(pool, "a")
    assert (await job_of(parked)).id == "a"
    await waiting.leave("w")
    await caught_up(waiting, pool)
    assert not waiting._of_worker


async def test_without_a_subscription_the_pops_of_the_own_process_end_all_the_same(deaf: Waiting) -> None:
    parked = await park(deaf, worker="w")
    await deaf.leave("w")
    assert await jobs_of(parked) == []


async def test_a_pop_that_leaves_takes_the_job_that_it_was_woken_for_and_wakes_the_next(
    deaf: Waiting, pool: Pool
) -> None:
    first, second = await park(deaf, worker="w"), await park(deaf)
    await pool.add([NewJob("a", "t", b""), NewJob("b", "t", b"")])
    deaf.notifier.hear(0, "ready 1 t")
    deaf.notifier.hear(0, "leave w")
    assert (await job_of(first)).id == "a"
    assert (await job_of(second)).id == "b"


async def test_a_ring_that_comes_when_it_leaves_goes_to_the_next(own_server: RedisServer) -> None:
    """The ring comes during its last look, which was too early for the job."""
    redis = Redis(own_server.url)
    pool = await Pool.open(redis)
    waiting = waiting_on(pool)
    first, second = await park(waiting, worker="w"), await park(waiting)
    own_server.freeze()
    waiting.notifier.hear(0, "leave w")
    await asked(redis)
    adding = asyncio.create_task(add(pool, "a"))  # after its last look and before the look of the next
    await asked(redis, 2)
    waiting.notifier.hear(0, "ready 1 t")
    own_server.thaw()
    assert await jobs_of(first) == []
    assert (await job_of(second)).id == "a"
    await adding
    await redis.close()


async def test_a_pop_that_takes_its_first_look_leaves_too(own_server: RedisServer) -> None:
    redis = Redis(own_server.url)
    waiting = waiting_on(await Pool.open(redis))
    own_server.freeze()
    popping = asyncio.create_task(waiting.pop(["t"], 1, LONG_S, worker="w"))
    await asked(redis)
    waiting.notifier.hear(0, "leave w")
    own_server.thaw()
    assert await jobs_of(popping) == []
    await redis.close()


async def test_one_worker_of_thousands_leaves_and_no_other_pop_looks(
    redis: Redis, waiting: Waiting, pool: Pool
) -> None:
    parked = [asyncio.create_task(waiting.pop(["t"], 1, LONG_S, worker=f"w{n}")) for n in range(5_000)]
    await until(lambda: waiting.parked == 5_000)
    await Topics(pool).stats()  # answered after their second looks
    await redis.read("CONFIG", "RESETSTAT")
    await waiting.leave("w4321")
    assert await jobs_of(parked[4321]) == []
    assert waiting.parked == 4_999
    said = (await redis.read("INFO", "commandstats")).decode()
    assert "cmdstat_evalsha:calls=1," in said
    waiting.close()
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*parked)


async def test_an_owner_ends_only_its_own_waiting_pops_of_a_worker(
    waiting: Waiting, other: Waiting, pool: Pool
) -> None:
    owned = [await park(each, worker="w", owner="me") for each in (waiting, other)]
    foreign = [await park(each, worker="w", owner=owner) for each in (waiting, other) for owner in ("you", "")]
    await waiting.leave("w", "me")
    assert [await jobs_of(parked) for parked in owned] == [[], []]
    await caught_up(waiting, pool)
    await caught_up(other, pool)
    assert not any(parked.done() for parked in foreign)
    await other.leave("w")
    assert [await jobs_of(parked) for parked in foreign] == [[]] * 4
