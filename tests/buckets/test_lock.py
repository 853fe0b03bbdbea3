"""buckets.lock: one process at a time runs the timers, and another takes over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from buckets.bell import Bell
from buckets.lock import Locks
from buckets.pool import Pool
from buckets.redis import Redis
from tests.buckets.jobs import add, popped_ids
from tests.redis_server import RedisServer
from tests.waiting import until


@pytest.fixture
async def bell(live_pool: Pool) -> AsyncIterator[Bell]:
    bell = Bell(live_pool)
    hearing = asyncio.create_task(bell.run())
    await until(bell.connected.is_set)
    yield bell
    hearing.cancel()
    await asyncio.gather(hearing, return_exceptions=True)


def held(locks: Locks) -> list[bool]:
    return [event.is_set() for event in locks.held]


async def owners(redis: Redis, pool: Pool) -> set[str | None]:
    values = await redis.read("MGET", *[pool.keys[0].lock(n) for n in range(pool.buckets)])
    return {value.decode() if value else None for value in values}


async def test_the_first_takes_all_locks_and_keeps_them(redis: Redis, live_pool: Pool, bell: Bell) -> None:
    first, second = Locks(live_pool, bell, 0), Locks(live_pool, bell, 0)
    for _ in range(3):
        await first.tick()
        await second.tick()
        assert (all(held(first)), any(held(second))) == (True, False)
    assert first.token != second.token
    assert await owners(redis, live_pool) == {first.token}
    for bucket in range(live_pool.buckets):
        assert 0 < await redis.read("PTTL", live_pool.keys[0].lock(bucket)) <= 1000


async def test_the_locks_of_one_that_died_fall_free(redis: Redis, live_pool: Pool, bell: Bell) -> None:
    assert all(await live_pool.beat(0, "dead", 50))
    heir = Locks(live_pool, bell, 0)

    async def taken() -> bool:
        await heir.tick()
        return all(held(heir))

    await until(taken)
    assert await owners(redis, live_pool) == {heir.token}


async def test_a_beat_takes_what_is_free_and_nothing_else(redis: Redis, live_pool: Pool, bell: Bell) -> None:
    await live_pool.beat(0, "other", 60_000)
    await redis.read("DEL", live_pool.keys[0].lock(3))
    locks = Locks(live_pool, bell, 0)
    await locks.tick()
    assert held(locks) == [bucket == 3 for bucket in range(live_pool.buckets)]
    assert await owners(redis, live_pool) == {"other", locks.token}


async def test_a_beat_that_finds_its_lock_with_another_lets_go(redis: Redis, live_pool: Pool, bell: Bell) -> None:
    """As after a pause longer than the lease."""
    locks = Locks(live_pool, bell, 0)
    await locks.tick()
    await redis.read("SET", live_pool.keys[0].lock(0), "other", "PX", 60_000)
    await locks.tick()
    assert held(locks) == [bucket != 0 for bucket in range(live_pool.buckets)]


async def test_only_the_owner_can_give_a_lock_up(redis: Redis, live_pool: Pool) -> None:
    await live_pool.beat(0, "owner", 60_000)
    await live_pool.unlock(0, "another")
    assert await owners(redis, live_pool) == {"owner"}
    await live_pool.unlock(0, "owner")
    assert await owners(redis, live_pool) == {None}


async def test_giving_up_rings_for_the_others(live_pool: Pool, bell: Bell) -> None:
    await live_pool.beat(0, "owner", 60_000)
    bell.free(0).clear()
    await live_pool.unlock(0, "owner")
    await until(bell.free(0).is_set)


async def test_who_stops_in_order_hands_over_at_once(redis: Redis, live_pool: Pool, bell: Bell) -> None:
    first, second = Locks(live_pool, bell, 0), Locks(live_pool, bell, 0)
    running = asyncio.create_task(first.run())
    await until(lambda: all(held(first)))
    waiting = asyncio.create_task(second.run())
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert not any(held(first))
    await until(lambda: all(held(second)))
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert await owners(redis, live_pool) == {None}


async def test_a_lock_is_not_trusted_when_redis_is_silent(own_server: RedisServer) -> None:
    redis = Redis(own_server.url)
    pool = await Pool.open(redis)
    locks = Locks(pool, Bell(pool), 0)
    running = asyncio.create_task(locks.run())
    await until(lambda: all(held(locks)))
    own_server.freeze()
    await until(lambda: not any(held(locks)))
    own_server.thaw()
    await until(lambda: all(held(locks)))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await redis.close()


async def test_locks_that_fell_free_are_asked_for_once(redis: Redis, live_pool: Pool, bell: Bell) -> None:
    await live_pool.beat(0, "other", 60_000)
    locks = Locks(live_pool, bell, 0)
    running = asyncio.create_task(locks.run())
    await until(lambda: locks.last_beat > 0)
    await redis.read("CONFIG", "RESETSTAT")
    bell.free(0).set()
    for _ in range(20):
        await redis.read("PING")
    said = (await redis.read("INFO", "commandstats")).decode()
    beats = int(said.split("cmdstat_evalsha:calls=")[1].partition(",")[0])
    assert 1 <= beats <= 3  # not one a round trip
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_namespace_that_was_emptied_is_founded_again(redis: Redis, live_pool: Pool, bell: Bell) -> None:
    locks = Locks(live_pool, bell, 0)
    await locks.tick()
    before = await redis.read("HGETALL", live_pool.keys[0].meta)
    await redis.read("FLUSHALL")
    await locks.tick()
    await locks.tick()
    assert await redis.read("HGETALL", live_pool.keys[0].meta) == before
    assert all(held(locks))
    await add(live_pool, "a")
    assert await popped_ids(live_pool) == ["a"]
