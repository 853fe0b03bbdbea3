"""buckets.waiting: events of timers and locks are set, set-aside records are logged, and nonsense does no harm."""

from __future__ import annotations

import asyncio
import contextlib
import re

import pytest

from buckets.errors import JobQueueError
from buckets.job import NewJob
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from buckets.scripts import SCRIPTS
from buckets.timers import timer
from buckets.waiting.notifier import Listener, Notifier
from buckets.waiting.waiting import Waiting
from tests.buckets.jobs import add, popped_ids
from tests.buckets.waiting.parked import caught_up, waiting_on
from tests.kit.proxy import Proxy, to
from tests.kit.redis_server import RedisServer
from tests.kit.waiting import until


async def test_an_entry_earlier_than_all_others_sets_the_alarm_unless_the_timer_looks_before(redis: Redis) -> None:
    later = re.findall(r"LATER_MS = (\d+)", SCRIPTS["add"].text)
    assert [int(each) > 1000 * timer._LONGEST_SLEEP_S for each in later] == [True]
    pool = await Pool.open(redis, "one", buckets=1)
    waiting = waiting_on(pool)
    alarm = waiting.notifier.alarm(0, 0)
    hearing = asyncio.create_task(waiting.notifier.run())
    await until(waiting.notifier.connected.is_set)
    for delay_ms, rings in ((60_000, False), (9_000, True), (6_000, True), (9_500, False)):
        alarm.clear()
        await add(pool, f"{delay_ms}", delay_ms=delay_ms)
        if rings:
            await until(alarm.is_set)
        else:
            await until(lambda: caught_up(waiting, pool))
            assert not alarm.is_set()
    hearing.cancel()
    await asyncio.gather(hearing, return_exceptions=True)


async def test_a_subscription_that_went_deaf_without_being_closed_is_renewed_and_what_it_missed_is_looked_for(
    own_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """No time-out of a call ends it: those of this Redis are far away."""
    caplog.set_level("INFO")
    direct = Redis(own_server.url)
    pool = await Pool.open(direct, "one", buckets=1)
    async with Proxy(to(str(own_server.socket))) as proxy:
        redis = Redis(proxy.url, timeout_s=600)
        notifier = Notifier(await Pool.open(redis, "one", buckets=1))
        alarm = notifier.alarm(0, 0)
        listening = asyncio.create_task(notifier.run())
        await until(notifier.connected.is_set)
        alarm.clear()
        proxy.mute_all()
        await add(pool, "a", delay_ms=60_000)
        await until(alarm.is_set)
        lost = next(record for record in caplog.records if record.message == "bell.lost")
        assert "it was deaf" in getattr(lost, "error", "")
        await until(lambda: "bell.found" in caplog.messages)
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        await redis.close()
    await direct.close()


async def test_a_read_only_replica_is_one_outage_however_often_the_subscription_is_lost(
    own_server: RedisServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each write that it refuses leads to another connection, in case another server is the master by now."""

    def told() -> list[str]:
        return [message for message in caplog.messages if message.startswith("bell.")]

    caplog.set_level("INFO")
    monkeypatch.setattr("buckets.waiting.notifier._STANDS_S", 600.0)
    direct, redis = Redis(own_server.url), Redis(own_server.url, timeout_s=1.0)
    pool = await Pool.open(redis, "one", buckets=1)
    notifier = Notifier(pool)
    lost: list[int] = []
    notifier.register(Listener(lost=lost.append))
    listening = asyncio.create_task(notifier.run())
    await until(notifier.connected.is_set)
    await direct.read("REPLICAOF", "127.0.0.1", "1")
    while len(lost) < 3:
        with contextlib.suppress(JobQueueError):
            await add(pool, "a")
    assert told() == ["bell.lost"]
    await direct.read("REPLICAOF", "NO", "ONE")
    monkeypatch.setattr("buckets.waiting.notifier._STANDS_S", 0.0)
    await direct.read("CLIENT", "KILL", "TYPE", "pubsub")
    await until(lambda: told()[:2] == ["bell.lost", "bell.found"])
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    await redis.close()
    await direct.close()


async def test_a_quiet_subscription_that_answers_a_ping_stays(
    own_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    redis = Redis(own_server.url)
    notifier = Notifier(await Pool.open(redis, "one", buckets=1))
    listening = asyncio.create_task(notifier.run())
    await until(notifier.connected.is_set)

    async def pings() -> bool:
        told = re.search(rb"cmdstat_ping:calls=(\d+)", await redis.read("INFO", "commandstats"))
        return told is not None and int(told[1]) >= 2

    await until(pings)
    assert notifier.connected.is_set() and "bell.lost" not in caplog.messages
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    await redis.close()


async def test_a_record_set_aside_is_told_in_the_log(
    redis: Redis, waiting: Waiting, pool: Pool, caplog: pytest.LogCaptureFixture
) -> None:
    await add(pool, "a")
    await redis.read("SET", pool.keys[0].job("a"), "from another program")
    assert await popped_ids(pool) == []
    await until(lambda: "job.set_aside" in caplog.messages)
    assert [getattr(record, "id", None) for record in caplog.records] == ["a"]
    assert "another program" not in caplog.text


async def test_what_another_program_says_on_the_channel_does_no_harm(redis: Redis, live_pool: Pool) -> None:
    waiting = waiting_on(live_pool)
    hearing = asyncio.create_task(waiting.notifier.run())
    try:
        await waiting.notifier.connected.wait()
        for nonsense in ("", "ready", "ready many t", "due", "due x", "due 99", "aside", "free bird", "\x00"):
            await redis.read("SPUBLISH", live_pool.keys[0].bell, nonsense)
        parked = asyncio.create_task(waiting.pop(["t"], 1, 20))
        await until(lambda: waiting.parked == 1)
        await live_pool.add([NewJob("a", "t", b"1")])
        assert [job.id for job in (await parked).jobs] == ["a"]
        assert not hearing.done()
    finally:
        hearing.cancel()
        await asyncio.gather(hearing, return_exceptions=True)
