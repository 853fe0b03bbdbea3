"""buckets.timers.members: which instances are alive, and which timers each is assigned."""

from __future__ import annotations

import asyncio
import time
from functools import partial

import pytest

from buckets.clock import HeldClock
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from buckets.timers import members as members_module
from buckets.timers.members import Members
from buckets.waiting.notifier import Notifier
from tests.buckets.instances import Instance, sign
from tests.kit.redis_server import RedisServer
from tests.kit.waiting import until


async def test_all_that_sign_are_on_the_list(pool: Pool, clock: HeldClock) -> None:
    for number in range(3):
        assert await sign(pool, f"i{number}") == [f"i{each}" for each in range(number + 1)]
        clock.advance(100)
    assert await sign(pool, "i0") == ["i0", "i1", "i2"]


async def test_who_has_not_signed_for_450_ms_is_struck_off(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    await sign(pool, "dead")
    for _ in range(3):
        await sign(pool, "alive")
        clock.advance(150)
    assert await sign(pool, "alive") == ["alive", "dead"]
    clock.advance(1)
    assert await sign(pool, "alive") == ["alive"]
    assert await redis.read("ZRANGE", pool.keys[0].members, 0, -1) == [b"alive"]


async def test_an_answer_says_when_the_next_may_be_struck_off(pool: Pool, clock: HeldClock) -> None:
    async def soonest() -> int:
        return (await members_module.sign(pool, "a", 450, 250))[1]

    assert await soonest() == -1
    await sign(pool, "b")
    clock.advance(200)
    await sign(pool, "c")
    assert await soonest() == 250
    clock.advance(250)
    assert await soonest() == 0


async def test_one_that_may_be_dead_is_looked_after_in_the_moment_in_which_it_would_be(
    pool: Pool, clock: HeldClock
) -> None:
    members = Members(pool, Notifier(pool))
    await members.tick()
    await sign(pool, "other")
    assert 0.051 < await members.tick() <= 0.15
    clock.advance(200)
    await members.tick()
    clock.advance(200)
    assert await members.tick() <= 0.051
    clock.advance(51)
    assert await members.tick() > 0.051
    assert members.living == [members.token.encode()]


async def test_the_list_is_read_only_when_someone_might_have_to_be_struck_off(pool: Pool) -> None:
    members = Members(pool, Notifier(pool))
    await members.tick()
    await sign(pool, "other")
    await members._ticked()
    assert len(members.living) == 1  # for half a second nobody could die of whom it knows
    members._read_at -= 0.4
    await members._ticked()
    assert len(members.living) == 2


async def test_a_signature_without_a_look_at_the_list_is_of_redis_s_time(
    redis: Redis, pool: Pool, clock: HeldClock
) -> None:
    members = Members(pool, Notifier(pool))
    await members.tick()
    begun = time.monotonic()
    await redis.read("ZADD", pool.keys[0].members, 5, members.token)
    assert 0.0 <= await members.tick_unread() <= 0.15
    signed_ms = int(await redis.read("ZSCORE", pool.keys[0].members, members.token))
    assert clock.now_us // 1000 - 1 <= signed_ms <= clock.now_us / 1000 + (time.monotonic() - begun + 1) * 1000


@pytest.mark.parametrize("lost", [("ZREM", True), ("DEL", False), ("SET", True)], ids=str)
async def test_who_is_not_on_the_list_when_it_signs_again_reads_it_next(
    redis: Redis, pool: Pool, lost: tuple[str, bool]
) -> None:
    """It was struck off while it stood still, or the list is gone, or another program's key is in its place."""
    command, has_value = lost
    members = Members(pool, Notifier(pool))
    await members.tick()
    await redis.read(command, pool.keys[0].members, *[members.token] * has_value)
    assert await members._ticked() == 0.0
    assert members.token.encode() not in await everyone(redis, pool)
    await members._ticked()
    assert await everyone(redis, pool) == [members.token.encode()]


async def everyone(redis: Redis, pool: Pool) -> list[bytes]:
    key = pool.keys[0].members
    return await redis.read("ZRANGE", key, 0, -1) if await redis.read("TYPE", key) == b"zset" else []


async def test_who_could_not_sign_itself_strikes_nobody_off(pool: Pool, clock: HeldClock) -> None:
    """Redis was paused or replaced: otherwise the first to sign again would find all others dead."""
    await sign(pool, "a")
    await sign(pool, "b")
    clock.advance(5_000)
    assert (await members_module.sign(pool, "a", 450, 250))[1:] == (-1, False, 0, [b"a", b"b"])
    clock.advance(150)
    assert await sign(pool, "a") == ["a"]  # b has had enough time


async def test_after_the_list_was_lost_the_others_get_the_time_to_find_it_again(pool: Pool, clock: HeldClock) -> None:
    """As after a failover: the first to find the new master does not take itself for the only one."""
    members = Members(pool, Notifier(pool))
    await members.tick()
    await sign(pool, "other")
    await members.tick()
    members.last_answer -= 3
    clock.advance(3_000)
    for _ in range(3):
        await members.tick()
        assert len(members.living) == 2
        clock.advance(150)
    members._spare_until -= 1
    await members.tick()
    assert len(members.living) == 1


async def test_the_dead_are_struck_off_though_all_are_slow(pool: Pool, clock: HeldClock) -> None:
    """Redis is far away, or the host busy: no instance signs as often as it should."""
    await sign(pool, "dead")
    await sign(pool, "alive")
    clock.advance(600)
    assert await sign(pool, "alive") == ["alive", "dead"]
    clock.advance(600)
    assert await sign(pool, "alive") == ["alive"]


async def test_who_is_new_strikes_off_those_who_are_long_gone(pool: Pool, clock: HeldClock) -> None:
    await sign(pool, "killed")
    clock.advance(451)
    assert await sign(pool, "started") == ["started"]


@pytest.mark.parametrize("ahead_ms", [451, 3_600_000])
async def test_a_clock_that_goes_back_keeps_no_dead_one_on_the_list(
    pool: Pool, clock: HeldClock, ahead_ms: int
) -> None:
    await sign(pool, "alive")
    await sign(pool, "dead")
    clock.advance(-ahead_ms)
    assert await sign(pool, "alive") == ["alive", "dead"]  # it had no chance yet to sign by this clock
    assert await sign(pool, "alive") == ["alive"]


async def test_each_has_its_share_of_all_timers_and_all_agree(redis: Redis, clock: HeldClock) -> None:
    pool = await Pool.open(redis, "wide", shards=4, buckets=5, clock=clock)
    instances = [Members(pool, Notifier(pool)) for _ in range(3)]
    for members in instances * 2:
        await members.tick()
    shares = [[mine for shard in range(4) for mine in members.assigned(shard)] for members in instances]
    assert sorted(sum(share) for share in shares) == [6, 7, 7]
    assert [sum(each) for each in zip(*shares, strict=True)] == [1] * 20


async def test_who_knows_of_nobody_yet_wants_nothing(pool: Pool) -> None:
    assert Members(pool, Notifier(pool)).assigned(0) == [False] * 8


async def test_a_change_wakes_the_locks_and_is_logged_once(pool: Pool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    notifier = Notifier(pool)
    members = Members(pool, notifier)
    await members.tick()
    assert notifier.free(0).is_set()
    notifier.free(0).clear()
    await members.tick()
    assert not notifier.free(0).is_set()
    await sign(pool, "other")
    await members.tick()
    assert notifier.free(0).is_set()
    logged = [record.__dict__["instances"] for record in caplog.records if record.getMessage() == "roll.changed"]
    assert logged == [1, 2]


async def test_who_stops_in_order_is_off_the_list_at_once(live_pool: Pool) -> None:
    instance = Instance(live_pool)
    async with instance.running():
        await until(lambda: bool(instance.members.living))
    assert await sign(live_pool, "other") == ["other"]


async def is_past(pool: Pool, ms: int) -> bool:
    return await pool.now_ms() > ms


async def test_an_instance_stays_on_the_list_of_a_redis_that_is_full(own_server: RedisServer) -> None:
    redis = Redis(own_server.url)
    pool = await Pool.open(redis)
    members = Members(pool, Notifier(pool))
    await members.tick()
    await redis.read("CONFIG", "SET", "maxmemory", 1)
    for _ in range(3):
        signed_ms = int(await redis.read("ZSCORE", pool.keys[0].members, members.token))
        assert await members._ticked() == 0.0, "it may not sign without a look, and looks at once"
        await until(partial(is_past, pool, signed_ms))
        await members._ticked()
        assert int(await redis.read("ZSCORE", pool.keys[0].members, members.token)) > signed_ms
    await redis.close()


async def test_the_list_ends_when_nobody_is_left_to_end_it(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    key = pool.keys[0].members
    await sign(pool, "killed")
    assert 50_000 < await redis.read("PTTL", key) <= 60_000
    await redis.read("PEXPIRE", key, 1_000)
    clock.advance(20_000)
    await sign(pool, "killed")
    assert await redis.read("PTTL", key) > 50_000
    clock.advance(20_000 - clock.now_us // 1000 % 20_000)
    await redis.read("PEXPIRE", key, 1_000)
    await members_module.sign_again(pool, "killed", clock.now_us // 1000)  # which renews nothing
    await sign(pool, "killed")
    assert await redis.read("PTTL", key) > 50_000


async def test_a_key_of_another_program_in_its_place_stops_nobody(redis: Redis, pool: Pool) -> None:
    await redis.read("SET", pool.keys[0].members, "another program's")
    assert await sign(pool, "a") == ["a"]
    await redis.read("ZADD", pool.keys[0].members, "inf", "for ever", "-inf", "never", 5, b"\xff")
    assert await sign(pool, "a") == ["a"]


async def test_a_list_on_an_emptied_redis_founds_the_namespace_and_has_all_shards_looked_at(
    redis: Redis, clock: HeldClock
) -> None:
    pool = await Pool.open(redis, shards=3, clock=clock)
    notifier = Notifier(pool)
    members = Members(pool, notifier)
    await members.tick()
    for shard in range(3):
        notifier.free(shard).clear()
    await redis.read("FLUSHALL")
    assert await members.tick() == 0.0
    assert all(notifier.free(shard).is_set() for shard in range(3))
    assert await redis.read("EXISTS", pool.keys[0].meta)
    await members.tick()
    assert await redis.read("ZCARD", pool.keys[0].members) == 1


async def test_a_jump_of_the_clock_wakes_the_timers_and_is_logged(
    pool: Pool, clock: HeldClock, caplog: pytest.LogCaptureFixture
) -> None:
    notifier = Notifier(pool)
    alarms = [notifier.alarm(0, bucket) for bucket in range(8)]
    members = Members(pool, notifier)
    await members.tick()
    assert not any(alarm.is_set() for alarm in alarms)
    clock.advance(3_600_000)
    await members.tick()
    assert all(alarm.is_set() for alarm in alarms)
    clock.advance(-60_000)
    await members.tick()
    logged = [record.__dict__["ahead_s"] for record in caplog.records if record.getMessage() == "clock.jumped"]
    assert [round(each) for each in logged] == [3600, -60]


async def test_the_list_is_logged_as_lost_once_and_keeps_what_it_knew(
    redis: Redis, live_pool: Pool, caplog: pytest.LogCaptureFixture
) -> None:
    instance = Instance(live_pool)
    await sign(live_pool, "other")
    async with instance.running():
        await until(lambda: len(instance.members.living) == 2)
        await redis.read("ACL", "SETUSER", "default", "-zadd")
        try:
            await until(lambda: "roll.lost" in caplog.messages)
            await asyncio.sleep(0.3)  # two more tries
            assert len(instance.members.living) == 2
        finally:
            await redis.read("ACL", "SETUSER", "default", "+@all")
        await until(lambda: not instance.members.is_stale())
    assert caplog.messages.count("roll.lost") == 1
