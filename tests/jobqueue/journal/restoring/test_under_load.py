"""Redis is emptied while jobs are added and workers go on; `jobqueue restore --all` is killed, and repeated."""

from __future__ import annotations

from functools import partial

import pytest

from buckets.fsck.check import Fsck
from buckets.job import State
from buckets.pool.pool import Pool
from tests.jobqueue.journal.restoring.lost import World, world_of
from tests.jobqueue.journal.restoring.under_load import Numbers, Work, process, restored
from tests.kit.forked import Process
from tests.kit.redis_server import RedisServer
from tests.kit.waiting import until

SHORT = Numbers(live=2_000, finished=400, reserved=200, kills=2, rate=1_500)
LONG = Numbers(live=100_000, finished=20_000, reserved=5_000, kills=5, rate=3_000)


async def lose_and_restore(world: World, redis: str, journal: str, numbers: Numbers) -> None:
    work = Work(world.pool)
    await work.fill(numbers)
    async with work.going_on():
        await until(lambda: len(work.finished) > 50)
        work.done |= work.finished  # before what is still to be drained
        known = set(work.waiting)
        await world.drained()
        await world.lose()
        perhaps = set(work.finished)  # what was not drained may run once more
        work.finished.clear()
        for _ in range(numbers.kills):
            before = await restored(world)
            async with process("restore", "--all", "--rate", str(numbers.rate), redis=redis, journal=journal) as run:
                await until(partial(_has_got_on, world, run, before), 60.0)
        for _ in range(2):
            async with process("restore", "--all", "--rate", "20000", redis=redis, journal=journal) as run:
                assert await run.wait() == 0
        await until(lambda: _nothing_to_do(world), 600.0)
    there = await world.records()
    assert {job_id for job_id in known if job_id.startswith("waiting")} <= set(there)
    assert known <= {*there, *work.done, *work.finished, *perhaps}
    assert work.again == [] and not any(job_id in there for job_id in work.done if job_id.startswith("done"))
    assert all(there[job_id].state is State.RESERVED for job_id in work.held)
    assert set(await world.pool.finish(list(work.held.items()))) == {"finished"}
    assert (await (await Fsck.open(world.pool.redis)).run()).findings == {}


async def _has_got_on(world: World, run: Process, before: int) -> bool:
    assert run.returncode is None, "it came to its end before it was killed"
    return await restored(world) > before + 100


async def _nothing_to_do(world: World) -> bool:
    (keys,) = world.pool.keys
    left = [await world.pool.redis.read("HGET", f"{keys.tag}c:work", word) for word in ("ready", "delayed")]
    return all(int(number or 0) < 20 for number in left)


async def test_jobs_come_back_once_while_the_service_goes_on(
    live_pool: Pool, redis_server: RedisServer, journal_url: str
) -> None:
    async with world_of(live_pool, redis_server.url, journal_url) as world:
        await lose_and_restore(world, redis_server.url, journal_url, SHORT)


@pytest.mark.slow
@pytest.mark.timeout(3600)
async def test_many_jobs_come_back_once_while_the_service_goes_on(
    live_pool: Pool, redis_server: RedisServer, journal_url: str
) -> None:
    async with world_of(live_pool, redis_server.url, journal_url) as world:
        await lose_and_restore(world, redis_server.url, journal_url, LONG)
