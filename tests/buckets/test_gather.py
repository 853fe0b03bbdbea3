"""buckets.gather: what is handed in during one turn of the loop is worked on together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from buckets.gather import Gather
from buckets.job import NewJob
from buckets.pool import Added, Pool
from buckets.redis import Redis
from tests.buckets.jobs import add, finish, pop, popped_ids, state
from tests.redis_server import RedisServer


class Worker:
    """Doubles numbers, and remembers what it was given together."""

    def __init__(self) -> None:
        self.seen: list[list[int]] = []

    async def work(self, items: list[int]) -> list[int]:
        self.seen.append(items)
        if 13 in items:
            raise ValueError("13")
        await asyncio.sleep(0)
        return [2 * item for item in items]


async def ask(gather: Gather[int], items: Sequence[int]) -> list[int]:
    return await gather.hand_in(items)


async def test_callers_of_one_turn_share_the_work_and_each_gets_its_own_results() -> None:
    worker = Worker()
    gather = Gather(worker.work, 100)
    assert list(await asyncio.gather(ask(gather, [1, 2]), ask(gather, [3]), ask(gather, []))) == [[2, 4], [6], []]
    assert await ask(gather, [4]) == [8]
    assert worker.seen == [[1, 2, 3], [4]]


async def test_not_too_much_is_done_together_and_the_items_of_one_caller_always_are() -> None:
    worker = Worker()
    gather = Gather(worker.work, 3)
    asked = [[1, 2], [3, 4], [5], [6, 7, 8, 9], [10]]
    assert await asyncio.gather(*(ask(gather, some) for some in asked)) == [[2 * n for n in some] for some in asked]
    assert worker.seen == [[1, 2], [3, 4, 5], [6, 7, 8, 9], [10]]


async def test_an_error_is_told_to_all_who_share_the_work_and_to_no_other() -> None:
    gather = Gather(Worker().work, 2)
    answers = await asyncio.gather(*(ask(gather, some) for some in ([1], [13], [2], [3])), return_exceptions=True)
    assert [isinstance(answer, ValueError) for answer in answers] == [True, True, False, False]


async def test_a_caller_that_is_gone_takes_nothing_from_the_others() -> None:
    gather = Gather(Worker().work, 100)
    tasks = [asyncio.create_task(ask(gather, [n])) for n in range(3)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert (answers[0], answers[2]) == ([0], [4])
    assert isinstance(answers[1], asyncio.CancelledError)


async def test_concurrent_adds_are_one_script_and_so_are_finishes(redis: Redis, live_pool: Pool) -> None:
    await add(live_pool, "first")
    await redis.read("CONFIG", "RESETSTAT")
    await asyncio.gather(*(add(live_pool, f"{n}") for n in range(50)))
    await asyncio.gather(*(finish(live_pool, job.id, job.lease) for job in await pop(live_pool, count=100)))
    said = (await redis.read("INFO", "commandstats")).decode()
    assert "cmdstat_evalsha:calls=3," in said  # with the pop


async def test_what_may_not_be_repeated_does_not_share_a_script_with_what_may(own_server: RedisServer) -> None:
    """Else an add that keeps would be lost with the connection, as one that replaces must be."""
    redis = Redis(own_server.url)
    pool = await Pool.open(redis)
    own_server.freeze()
    keeping = asyncio.create_task(pool.add([NewJob("a", "t", b"1")]))
    replacing = asyncio.create_task(pool.add([NewJob("b", "t", b"1", if_exists="replace")]))
    for _ in range(5):
        await asyncio.sleep(0)
    own_server.kill()
    own_server.start()
    (kept,), (replaced,) = await asyncio.gather(keeping, replacing)
    assert isinstance(kept, Added)
    assert not isinstance(replaced, Added)
    await redis.close()


async def test_the_same_id_handed_in_by_many_at_once_is_one_job(live_pool: Pool) -> None:
    results = [result.result for result in await asyncio.gather(*(add(live_pool, "a") for _ in range(20)))]
    assert sorted(results) == ["created"] + ["existing"] * 19
    assert await popped_ids(live_pool) == ["a"]


async def test_what_is_asked_after_it_has_begun_comes_behind_a_finish(live_pool: Pool) -> None:
    """A pop would else hand out once more, when its lease is over, a job that the same worker finished before."""
    for job_id in ("known", "a"):  # a script that Redis does not know yet is told again, behind all others
        await add(live_pool, job_id)
        await pop(live_pool)
        finishing = asyncio.create_task(finish(live_pool, job_id))
        await asyncio.sleep(0)
        await live_pool.begun()
        seen = await state(live_pool, job_id)
        assert await finishing == "finished"
    assert seen == "finished"


async def test_nobody_waits_for_work_that_was_not_handed_in() -> None:
    async with asyncio.timeout(1):
        await Gather(Worker().work, 1).begun()


@pytest.mark.parametrize("most", [1, 1000])
async def test_begun_means_that_the_first_steps_were_taken(most: int) -> None:
    worker = Worker()
    gather = Gather(worker.work, most)
    asking = [asyncio.create_task(ask(gather, [n])) for n in range(3)]
    await asyncio.sleep(0)
    await gather.begun()
    assert [item for some in worker.seen for item in some] == [0, 1, 2]
    await asyncio.gather(*asking)
