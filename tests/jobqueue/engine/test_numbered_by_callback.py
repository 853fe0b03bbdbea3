"""Pops whose jobs need new numbers, and whose clients leave meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from buckets import Pool
from buckets.errors import JobQueueError
from buckets.redis.client import Redis
from buckets.topics.topics import Topics
from jobqueue.engine.by_callback import NumberedPop
from tests.buckets.jobs import add
from tests.jobqueue.test_commands import engine_on
from tests.kit.redis_server import RedisServer
from tests.kit.waiting import until


def numbered_pop(pool: Pool, outcomes: list[Any]) -> NumberedPop:
    engine = engine_on(pool).by_callback
    return NumberedPop(engine, engine.pollers.begin("w", None, ["t"]), outcomes.append)


@pytest.mark.parametrize("turns", range(6))
async def test_a_pop_that_is_cancelled_while_its_jobs_get_numbers_gives_them_back(live_pool: Pool, turns: int) -> None:
    await add(live_pool, "foreign")
    outcomes: list[Any] = []
    pop = numbered_pop(live_pool, outcomes)
    pop.take(await live_pool.pop(["t"], 1))
    for _ in range(turns):
        await asyncio.sleep(0)
    pop.cancel()
    await until(lambda: not asyncio.all_tasks() - {asyncio.current_task()})
    stats = await Topics(live_pool).stats("t")
    assert (outcomes, stats.counts["ready"]) == ([], 1)


async def test_jobs_that_get_no_numbers_go_back_and_the_pop_is_told_why(own_server: RedisServer) -> None:
    redis = Redis(own_server.url, timeout_s=0.3)
    pool = await Pool.open(redis)
    await add(pool, "foreign")
    popped = await pool.pop(["t"], 1)
    outcomes: list[Any] = []
    own_server.freeze()
    numbered_pop(pool, outcomes).take(popped)
    await until(lambda: bool(outcomes))
    own_server.thaw()
    assert isinstance(outcomes[0], JobQueueError)
    await pool.close()
    assert (await Topics(pool).stats("t")).counts["ready"] == 1
    await redis.close()
