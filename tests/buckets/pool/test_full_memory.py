"""A full Redis: adds are refused, everything else works, and adds succeed again without an operator."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator

import pytest

from buckets.clock import HeldClock
from buckets.errors import NoRoom
from buckets.job import NewJob, State
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from buckets.timers.members import sign_out
from buckets.topics.topics import Bounds, Topics
from tests.buckets.books import check_books
from tests.buckets.instances import Instance, give_up
from tests.buckets.jobs import add, delete, finish, get, pop, pop_one, state
from tests.buckets.topics.walks import peeked, purge
from tests.buckets.waiting.parked import hearing, jobs_of, park
from tests.kit.redis_server import RedisServer
from tests.kit.waiting import tick_all

JOBS = 40


class Full:
    """A pool whose Redis accepted jobs until it was full."""

    def __init__(self, redis: Redis, pool: Pool, clock: HeldClock) -> None:
        self.redis = redis
        self.pool = pool
        self.clock = clock

    async def fill(self) -> None:
        for n in range(JOBS):
            await add(self.pool, f"r{n}", ttr_ms=1_000, tries=2, backoff_ms=(0, 5_000))
            await add(self.pool, f"d{n}", delay_ms=60_000, body=b"x" * 2_000)
        await self.redis.read("CONFIG", "SET", "maxmemory-policy", "noeviction")
        await self.limit(1)

    async def limit(self, megabytes: int) -> None:
        await self.redis.read("CONFIG", "SET", "maxmemory", megabytes << 20 if megabytes > 1 else 1)


@pytest.fixture
async def full(own_server: RedisServer) -> AsyncIterator[Full]:
    redis, clock = Redis(own_server.url), HeldClock()
    pool = await Pool.open(redis, clock=clock)
    full = Full(redis, pool, clock)
    await full.fill()
    yield full
    await pool.close()
    await redis.close()


async def test_an_add_is_told_that_there_is_no_room_and_changes_nothing(full: Full) -> None:
    for if_exists in ("keep", "replace", "reject"):
        with pytest.raises(NoRoom) as refusal:
            await add(full.pool, "new", if_exists=if_exists)
        assert refusal.value.retry_after > 0
    results = await full.pool.add([NewJob(f"new{n}", "t", b"") for n in range(300)])
    assert [type(result) for result in results] == [NoRoom] * 300
    assert await state(full.pool, "new") == "unknown"
    await check_books(full.redis, full.pool)


async def test_all_that_drains_goes_on(full: Full) -> None:
    """Pop, finish, delete, TTR, back-off, dead letters, timers and figures: a full queue must be able to drain."""
    pool, clock = full.pool, full.clock
    first = await pop(pool, count=JOBS, worker="w", ttr_ms=1_000)
    assert len(first) == JOBS
    await pool.unpop(first[:5])
    assert await finish(pool, "r10", first[10].lease) == "finished"
    assert await delete(pool, "r11") == "reserved"
    assert await delete(pool, "d0") == "delayed"
    clock.advance(1_000)
    assert await tick_all(pool) == JOBS - 7
    assert len(await pop(pool, count=JOBS)) == JOBS - 2
    clock.advance(1_000)
    await tick_all(pool)
    stats = await Topics(pool).stats("t")
    assert stats.counts == {"delayed": JOBS - 1, "ready": 5, "reserved": 0, "dead": JOBS - 7}
    clock.advance(60_000)
    await tick_all(pool)
    assert (await get(pool, "d1")).body == b"x" * 2_000
    assert (await Topics(pool).stats("t")).counts["ready"] == JOBS - 1 + 5
    await check_books(full.redis, pool)


async def test_workers_and_operators_go_on_but_for_new_bodies(full: Full) -> None:
    pool, clock = full.pool, full.clock
    jobs = await pop(pool, count=4, worker="w")
    for job in jobs:
        assert await pool.touch(job.id, job.lease, 60_000) > clock.now_us // 1000
    assert (await pool.release("r0", reason="later")).state == "ready"
    assert (await pool.release("r1", delay_ms=5_000, counts=False)).state == "delayed"
    assert await pool.bury("r2", reason="poison") == "dead"
    assert await pool.bury("r3") == "dead"
    assert await pool.kick(["r2"]) == ["ready"]
    assert await Topics(pool).kick("t", 9) == 1
    assert (await pool.take("d3", worker="w")).body == b"x" * 2_000
    assert (await pool.release("d3", delay_ms=0, note=b"n" * 64, priority=9)).state == "ready"
    await pool.take("d3")
    assert await pool.bury("d3", note=b"m" * 64) == "dead"
    assert await finish(pool, "d3", None, "t") == "finished"
    assert await finish(pool, "d4", None, "t", settles=True) == "deleted"
    assert await delete(pool, "d5", "t", [State.RESERVED]) == "delayed"
    assert await pool.run("d0") == clock.now_us // 1000
    moved = await pool.update("d1", delay_ms=9_000, priority=9, ttl_ms=60_000)
    assert (moved.state, moved.due) == ("delayed", clock.now_us // 1000 + 9_000)
    assert (await pool.update("d0", priority=0, ttl_ms=60_000)).state == "ready"
    before = await get(pool, "d2")
    for body in (b"", b"y" * 4_000):
        with pytest.raises(NoRoom):
            await pool.update("d2", body=body, priority=9)
    assert await get(pool, "d2") == before
    await check_books(full.redis, pool)
    await full.limit(100)
    assert (await pool.update("d2", body=b"y" * 4_000)).state == "delayed"
    assert (await get(pool, "d2")).body == b"y" * 4_000
    await check_books(full.redis, pool)


async def test_the_locks_of_the_timers_are_kept_and_taken(full: Full) -> None:
    first, second = Instance(full.pool), Instance(full.pool)
    await first.tick()
    assert all(first.held)
    await sign_out(full.pool, first.members.token)
    await give_up(full.pool, first.members.token)
    await second.tick()
    assert all(second.held)


async def test_a_process_may_join_the_namespace(full: Full) -> None:
    assert (await Pool.open(full.redis)).buckets == full.pool.buckets


async def test_a_worker_may_leave(full: Full) -> None:
    async with hearing(full.pool) as here, hearing(full.pool) as elsewhere:
        parked = await park(elsewhere, ["empty"], worker="w")
        await here.leave("w")
        assert await jobs_of(parked) == []


async def test_what_is_done_with_whole_topics_goes_on(full: Full) -> None:
    """Looking, pausing, purging, bounding and forgetting: an operator of a full queue needs them."""
    pool, clock, topics = full.pool, full.clock, Topics(full.pool)
    for job in await pop(pool, count=4):
        await pool.bury(job.id)
    await pop(pool, count=6)
    jobs = await peeked(pool, count=7)
    assert Counter(job.state.word for job in jobs) == {"delayed": JOBS, "ready": JOBS - 10, "reserved": 6, "dead": 4}
    assert await topics.pause("t", 60_000) == clock.now_us // 1000 + 60_000
    assert await pop(pool) == []
    assert (await topics.page())[0][0].paused_until == clock.now_us // 1000 + 60_000
    assert await topics.resume("t")
    assert await topics.pause("never seen") == 0
    assert await topics.resume("never seen")
    assert await topics.bound(0, lambda topic: Bounds(3_600_000, 1)) == 3
    await check_books(full.redis, pool)
    for of, number in ((State.READY, JOBS - 10), (State.DELAYED, JOBS), (None, 7)):
        assert await purge(pool, of) == number
        await check_books(full.redis, pool)
    clock.advance(3_600_000)
    assert await topics.forget(0, 3_600_000) == 2
    assert (await topics.page()) == ([], 0, 0)


async def test_a_record_that_cannot_be_read_is_still_set_aside(full: Full) -> None:
    await full.limit(100)
    await full.redis.read("SET", full.pool.keys[0].job("r0"), "from another program")
    await full.limit(1)
    assert (await pop_one(full.pool)).id == "r1"
    assert await full.redis.read("HEXISTS", full.pool.keys[0].aside, "r0") == 1


async def test_adds_come_back_by_themselves_when_there_is_room(full: Full) -> None:
    with pytest.raises(NoRoom):
        await add(full.pool, "new")
    await full.limit(100)
    assert (await add(full.pool, "new")).result == "created"


async def test_room_that_jobs_leave_is_room_for_others(own_server: RedisServer) -> None:
    """No operator is needed: draining is enough."""
    redis = Redis(own_server.url)
    pool = await Pool.open(redis)
    memory = dict(line.split(":", 1) for line in (await redis.read("INFO", "memory")).decode().split() if ":" in line)
    await redis.read("CONFIG", "SET", "maxmemory", int(memory["used_memory"]) + (2 << 20))
    taken = 0
    with pytest.raises(NoRoom):
        while True:
            await add(pool, f"a{taken}", body=b"x" * 50_000, retention_ms=0)
            taken += 1
    assert taken > 10
    for _ in range(taken):
        await finish(pool, (await pop_one(pool)).id)
    assert (await add(pool, "again", body=b"x" * 50_000)).result == "created"
    await check_books(redis, pool)
    await redis.close()
