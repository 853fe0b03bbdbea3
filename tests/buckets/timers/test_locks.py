"""buckets.timers.locks: each timer runs in one instance, and another takes it over."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator

import pytest

from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from buckets.timers import members
from buckets.timers.locks import BEAT_S
from buckets.timers.members import sign_out
from buckets.waiting.notifier import Notifier
from tests.buckets.instances import Instance, ended, give_up, sign, take
from tests.buckets.jobs import add, popped_ids
from tests.kit.redis_server import RedisServer
from tests.kit.waiting import until


@pytest.fixture
async def notifier(live_pool: Pool) -> AsyncIterator[Notifier]:
    notifier = Notifier(live_pool)
    hearing = asyncio.create_task(notifier.run())
    await until(notifier.connected.is_set)
    yield notifier
    await ended([hearing])


async def owners(redis: Redis, pool: Pool, shard: int = 0) -> list[str | None]:
    values = await redis.read("MGET", *[pool.keys[shard].lock(n) for n in range(pool.buckets)])
    return [value.decode() if value else None for value in values]


async def beats(redis: Redis) -> int:
    """How many scripts Redis ran since its statistics were reset."""
    said = (await redis.read("INFO", "commandstats")).decode()
    return int(said.partition("cmdstat_evalsha:calls=")[2].partition(",")[0] or 0)


async def test_who_is_alone_takes_all_locks_and_keeps_them(redis: Redis, live_pool: Pool) -> None:
    only = Instance(live_pool)
    for _ in range(3):
        await only.tick()
        assert all(only.held)
    assert await owners(redis, live_pool) == [only.members.token] * 8
    for bucket in range(live_pool.buckets):
        assert 2000 < await redis.read("PTTL", live_pool.keys[0].lock(bucket)) <= 6000


async def test_instances_share_the_timers_evenly(redis: Redis, live_pool: Pool) -> None:
    three = [Instance(live_pool) for _ in range(3)]
    for _ in range(3):  # learn of each other; give up; take
        for instance in three:
            await instance.tick()
    assert sorted(sum(instance.held) for instance in three) == [2, 3, 3]
    assert [sum(held) for held in zip(*(instance.held for instance in three), strict=True)] == [1] * 8
    by_token = {instance.members.token: instance for instance in three}
    for bucket, owner in enumerate(await owners(redis, live_pool)):
        assert owner
        assert by_token[owner].held[bucket]


async def test_the_timers_of_many_shards_are_shared_as_one_row(redis: Redis) -> None:
    """Otherwise the first instance would have the first bucket of every shard."""
    pool = await Pool.open(redis, "many", shards=16, buckets=2)
    five = [Instance(pool) for _ in range(5)]
    for _ in range(3):
        for instance in five:
            await instance.tick()
    assert sorted(sum(instance.held) for instance in five) == [6, 6, 6, 7, 7]
    assert [sum(held) for held in zip(*(instance.held for instance in five), strict=True)] == [1] * 32


async def test_the_locks_of_one_that_is_not_on_the_list_are_taken_before_their_end(
    redis: Redis, live_pool: Pool
) -> None:
    assert all(await take(live_pool, "dead"))
    heir = Instance(live_pool)
    await heir.tick()
    assert await owners(redis, live_pool) == [heir.members.token] * 8


async def test_the_locks_of_the_living_are_left_to_them(redis: Redis, live_pool: Pool) -> None:
    await sign(live_pool, "other")
    await take(live_pool, "other")
    instance = Instance(live_pool)
    await instance.members.tick()
    ours, others = (instance.members.assigned(0).index(each) for each in (True, False))
    await redis.read("DEL", live_pool.keys[0].lock(ours), live_pool.keys[0].lock(others))
    await instance.tick()
    assert [bucket for bucket, held in enumerate(instance.held) if held] == [ours]  # of the two free ones
    assert (await owners(redis, live_pool)).count("other") == 6


async def test_a_lock_without_an_end_is_taken_though_its_owner_lives(redis: Redis, live_pool: Pool) -> None:
    await redis.read("SET", live_pool.keys[0].lock(3), "other")
    assert (await take(live_pool, "us", living=["other"]))[3]


async def test_a_beat_that_finds_its_lock_with_another_lets_go(redis: Redis, live_pool: Pool) -> None:
    """As after a pause longer than the lease."""
    instance = Instance(live_pool)
    await instance.tick()
    await sign(live_pool, "other")
    for bucket in range(live_pool.buckets):
        await redis.read("SET", live_pool.keys[0].lock(bucket), "other", "PX", 60_000)
    await instance.tick()
    assert not any(instance.held)


async def test_only_the_owner_can_give_a_lock_up(redis: Redis, live_pool: Pool) -> None:
    await take(live_pool, "owner")
    await give_up(live_pool, "another")
    assert set(await owners(redis, live_pool)) == {"owner"}
    await give_up(live_pool, "owner")
    assert set(await owners(redis, live_pool)) == {None}


async def test_giving_up_rings_for_the_others(live_pool: Pool, notifier: Notifier) -> None:
    await take(live_pool, "owner")
    notifier.free(0).clear()
    await give_up(live_pool, "owner")
    await until(notifier.free(0).is_set)


async def test_who_stops_in_order_hands_over_at_once(redis: Redis, live_pool: Pool) -> None:
    first, second = Instance(live_pool), Instance(live_pool)
    async with second.running():
        async with first.running():
            await until(lambda: (sum(first.held), sum(second.held)) == (4, 4))
        assert not any(first.held)
        await until(lambda: all(second.held))
        assert second.members.living == [second.members.token.encode()]
    assert set(await owners(redis, live_pool)) == {None}
    assert await redis.read("EXISTS", live_pool.keys[0].members) == 0


async def test_who_hears_that_locks_fell_free_looks_at_once_who_is_gone(
    live_pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SIGN_S", "LIFE_S", "_READ_S"):  # otherwise the list is read soon enough anyway
        monkeypatch.setattr(members, name, 60.0)
    instance = Instance(live_pool)
    await sign(live_pool, "other")
    async with instance.running():
        await until(lambda: sum(instance.held) == 4)
        await take(live_pool, "other", living=[instance.members.token])
        await sign_out(live_pool, "other")
        await give_up(live_pool, "other")
        await until(lambda: all(instance.held))


async def test_a_newcomer_gets_its_share(redis: Redis, live_pool: Pool) -> None:
    first, second = Instance(live_pool), Instance(live_pool)
    async with first.running():
        await until(lambda: all(first.held))
        async with second.running():
            await until(lambda: (sum(first.held), sum(second.held)) == (4, 4))


async def test_what_an_owner_does_not_let_go_is_asked_for_again_though_no_bell_rings(
    redis: Redis, live_pool: Pool
) -> None:
    """As while the subscription is lost: a timer that nobody runs must not wait 2 s for the next beat."""
    instance = Instance(live_pool)
    await sign(live_pool, "other")
    await take(live_pool, "other")
    await instance.members.tick()
    assert await instance.locks[0]._ticked() < 0.2
    await redis.read("DEL", *(live_pool.keys[0].lock(bucket) for bucket in range(8)))
    assert await instance.locks[0]._ticked() == BEAT_S


async def test_a_lock_is_not_trusted_when_redis_is_silent(
    own_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    redis = Redis(own_server.url)
    instance = Instance(await Pool.open(redis))
    async with instance.running():
        await until(lambda: all(instance.held))
        own_server.freeze()
        await until(lambda: not any(instance.held))
        own_server.thaw()
        await until(lambda: all(instance.held))
        await until(lambda: {"roll.found", "lock.found"} <= set(caplog.messages))
    for name in ("roll", "lock"):
        assert caplog.messages.index(f"{name}.lost") < caplog.messages.index(f"{name}.found")
    await redis.close()


async def test_locks_that_fell_free_are_asked_for_once(redis: Redis, live_pool: Pool) -> None:
    instance = Instance(live_pool)
    async with instance.running():
        await until(lambda: all(instance.held))
        await redis.read("CONFIG", "RESETSTAT")
        instance.notifier.free(0).set()
        for _ in range(20):
            await redis.read("PING")
        assert 1 <= await beats(redis) <= 4  # not one per round trip; the list is read, too


async def test_a_shard_of_which_an_instance_has_nothing_is_not_asked_but_while_the_list_is_stale(redis: Redis) -> None:
    pool = await Pool.open(redis, "few", buckets=1)
    instance = Instance(pool)
    await instance.members.tick()
    others = itertools.count()
    while any(instance.members.assigned(0)):
        await sign(pool, str(next(others)))
        await instance.members.tick()
    await redis.read("CONFIG", "RESETSTAT")
    await instance.locks[0]._ticked()
    assert await beats(redis) == 0
    instance.members.last_answer -= 2  # now the locks have to find out whether Redis answers
    await instance.locks[0]._ticked()
    assert await beats(redis) == 1


async def test_while_the_list_is_stale_locks_are_kept_and_those_that_nobody_holds_are_taken(
    redis: Redis, live_pool: Pool
) -> None:
    """As on a Cluster, when an instance ends while the master of the list's shard is away."""
    instance = Instance(live_pool)
    await sign(live_pool, "other")
    async with instance.running():
        await until(lambda: sum(instance.held) == 4)
        await take(live_pool, "other", [instance.members.token])
        await redis.read("ACL", "SETUSER", "default", "-zadd")
        try:
            await until(instance.members.is_stale)
            asked = instance.locks[0].last_answer
            await until(lambda: instance.locks[0].last_answer > asked)
            assert sum(instance.held) == 4
            await live_pool.redis.read("DEL", *(live_pool.keys[0].lock(number) for number in range(8)))
            await until(lambda: sum(instance.held) == 8)
        finally:
            await redis.read("ACL", "SETUSER", "default", "+@all")


async def test_a_namespace_that_was_emptied_is_founded_again(
    redis: Redis, live_pool: Pool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    instance = Instance(live_pool)
    async with instance.running():
        await until(lambda: all(instance.held))
        before = await redis.read("HGETALL", live_pool.keys[0].meta)
        await redis.read("FLUSHALL")

        async def founded() -> bool:
            return await owners(redis, live_pool) == [instance.members.token] * 8

        await until(founded)
        assert await redis.read("HGETALL", live_pool.keys[0].meta) == before
        assert caplog.messages.index("namespace.lost") < caplog.messages.index("namespace.found")
        await add(live_pool, "a")
        assert await popped_ids(live_pool) == ["a"]


async def test_settings_that_are_lost_alone_are_noticed_by_the_next_beat(redis: Redis, live_pool: Pool) -> None:
    instance = Instance(live_pool)
    await instance.tick()
    await redis.read("DEL", live_pool.keys[0].meta)
    assert not await instance.locks[0].tick()
    assert await redis.read("EXISTS", live_pool.keys[0].meta)
    assert await instance.locks[0].tick()
