"""buckets.waiting: events of timers and locks are set, set-aside records are logged, and nonsense does no harm."""

from __future__ import annotations

import asyncio

import pytest

from buckets.job import NewJob
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from buckets.waiting.waiting import Waiting
from tests.buckets.jobs import add, popped_ids
from tests.buckets.waiting.parked import caught_up, waiting_on
from tests.kit.waiting import until


async def test_an_entry_earlier_than_all_others_sets_the_alarm_of_its_bucket(redis: Redis) -> None:
    pool = await Pool.open(redis, "one", buckets=1)
    waiting = waiting_on(pool)
    alarm = waiting.notifier.alarm(0, 0)
    hearing = asyncio.create_task(waiting.notifier.run())
    await until(waiting.notifier.connected.is_set)
    for delay_ms, rings in ((60_000, True), (30_000, True), (90_000, False)):
        alarm.clear()
        await add(pool, f"{delay_ms}", delay_ms=delay_ms)
        if rings:
            await until(alarm.is_set)
        else:
            await until(lambda: caught_up(waiting, pool))
            assert not alarm.is_set()
    hearing.cancel()
    await asyncio.gather(hearing, return_exceptions=True)


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
