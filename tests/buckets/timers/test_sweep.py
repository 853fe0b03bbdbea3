"""buckets.timers.sweep: dead letters beyond their bounds go, idle topics are forgotten, and one process does it."""

from __future__ import annotations

import asyncio

import pytest

from buckets.clock import HeldClock
from buckets.events.switch import read_events, stream_key, switch_on
from buckets.job import NewJob
from buckets.namespace import Switch
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from buckets.timers.sweep import Sweep
from buckets.topics.topics import Bounds, Topics
from tests.buckets.books import check_books
from tests.buckets.instances import Instance
from tests.buckets.jobs import add, delete, pop_one, state
from tests.buckets.schedules.scheduled import Scheduled
from tests.kit.waiting import until

DAY_MS = 86_400_000


def bounds_of(topic: str) -> Bounds:
    return Bounds(DAY_MS, 2) if topic == "t" else Bounds(10 * DAY_MS)


def sweep_of(pool: Pool, idle_s: float = 60.0) -> tuple[Sweep, Instance]:
    instance = Instance(pool)
    return Sweep(Topics(pool), instance.locks[0], bounds_of, idle_s), instance


async def bury(pool: Pool, job_id: str, topic: str = "t") -> None:
    await add(pool, job_id, topic)
    await pool.bury((await pop_one(pool, topic)).id)


async def test_a_sweep_keeps_the_newest_dead_letters_of_each_topic(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    sweep, _ = sweep_of(pool)
    for number in range(4):
        await bury(pool, f"t:{number}")
        await bury(pool, f"u:{number}", "u")
        clock.advance(1)
    await sweep.tick()
    assert [await state(pool, f"t:{number}") for number in range(4)] == ["deleted", "deleted", "dead", "dead"]
    assert (await Topics(pool).stats("u")).counts["dead"] == 4
    await check_books(redis, pool)
    clock.advance(DAY_MS)
    await sweep.tick()
    assert (await Topics(pool).stats("t")).counts["dead"] == 0
    assert (await Topics(pool).stats("u")).counts["dead"] == 4
    await check_books(redis, pool)


async def test_many_dead_letters_over_many_topics_go_in_bounded_steps(
    redis: Redis, pool: Pool, clock: HeldClock
) -> None:
    for number in range(130):
        await bury(pool, f"t:{number}")
        await bury(pool, f"u:{number}", f"u{number}")
    await redis.read("CONFIG", "RESETSTAT")
    clock.advance(20 * DAY_MS)
    await sweep_of(pool, idle_s=10_000_000)[0].tick()
    assert (await Topics(pool).stats()).counts["dead"] == 0
    await check_books(redis, pool)


async def test_a_drained_namespace_leaves_nothing_but_its_settings(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    for number in range(250):
        await add(pool, f"j{number}", f"topic{number}", delay_ms=number % 3, retention_ms=0)
    for number in range(250):
        await delete(pool, f"j{number}")
    sweep, _ = sweep_of(pool, idle_s=60)
    await sweep.tick()
    assert len(await Topics(pool).names(0)) == 250  # not idle for long enough
    clock.advance(60_000)
    await sweep.tick()
    assert await redis.read("KEYS", "*") == [b"{jq:0}:meta"]


async def test_a_sweep_keeps_the_events_that_nobody_reads_within_their_bytes(
    redis: Redis, pool: Pool, caplog: pytest.LogCaptureFixture
) -> None:
    await switch_on(pool, 0, Switch(1_000_000))
    sweep = Sweep(Topics(pool), Instance(pool).locks[0], bounds_of, 60.0, events_bytes=2_000_000)
    for number in range(40):
        await pool.add([NewJob(f"j{number}:{each}", "t", b"x" * 1000) for each in range(100)])
    before = await redis.read("XLEN", stream_key(pool, 0))
    with caplog.at_level("INFO"):
        await sweep.tick()
    events = (await read_events(pool, 0)).stream
    assert events and 0 < events.entries < before and events.bytes <= 2_000_000
    swept = next(record for record in caplog.records if record.getMessage() == "shard.swept")
    assert vars(swept)["events"] == before - events.entries


async def test_a_topic_with_a_job_in_any_state_is_in_use(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", "delayed", delay_ms=DAY_MS)
    await add(pool, "b", "ready")
    await add(pool, "c", "reserved", ttr_ms=80_000_000)
    await pop_one(pool, "reserved")
    await bury(pool, "d", "dead")
    await Topics(pool).pause("paused")
    await add(pool, "e", "over")
    await delete(pool, "e")
    clock.advance(61_000)
    await sweep_of(pool)[0].tick()
    assert set(await Topics(pool).names(0)) == {"delayed", "ready", "reserved", "dead", "paused"}
    await check_books(redis, pool)


async def test_a_forgotten_topic_begins_anew(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", retention_ms=10 * DAY_MS)
    await delete(pool, "a")
    clock.advance(61_000)
    await sweep_of(pool)[0].tick()
    assert (await Topics(pool).stats("t")).totals == {}
    assert await state(pool, "a") == "deleted"  # its tombstone outlived the topic
    assert (await add(pool, "a", if_exists="replace")).result == "replaced"
    assert await Topics(pool).names(0) == ["t"]
    await check_books(redis, pool)


async def test_the_sweep_runs_where_the_first_lock_is_held(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", retention_ms=0)
    await delete(pool, "a")
    clock.advance(100)
    sweep, instance = sweep_of(pool, idle_s=0.1)
    running = asyncio.create_task(sweep.run())
    await asyncio.sleep(0)
    assert await Topics(pool).names(0) == ["t"]
    await instance.tick()

    async def forgotten() -> bool:
        return await Topics(pool).names(0) == []

    await until(forgotten)
    running.cancel()


async def test_schedules_that_lost_their_entries_have_them_again(
    redis: Redis, pool: Pool, clock: HeldClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Such as those that the timer of an older version met, which knows no schedules and removed them."""
    caplog.set_level("INFO")
    scheduled = Scheduled(pool, clock)
    for number in range(150):
        await scheduled.define(f"s{number}", 60_000, paused=number == 0)
    sweep, _ = sweep_of(pool)
    clock.advance(59_000)
    await sweep.tick()
    assert not [record for record in caplog.records if record.getMessage() == "shard.swept"]
    for number in range(100):
        bucket = pool.keys[0].bucket((await scheduled.record(f"s{number}")).bucket)
        await redis.read("ZREM", bucket, f"~s{number}")
    await sweep.tick()
    await check_books(redis, pool)
    swept = next(record for record in caplog.records if record.getMessage() == "shard.swept")
    assert swept.schedules == 99  # type: ignore[attr-defined]
    await scheduled.advance(1_000)
    assert {len(await scheduled.times(f"s{number}")) for number in range(1, 150)} == {1}


async def test_one_sweep_looks_at_a_part_of_many_schedules_and_the_next_one_goes_on(
    redis: Redis, pool: Pool, clock: HeldClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("buckets.timers.sweep._MENDED", 2)
    scheduled, (sweep, _) = Scheduled(pool, clock), sweep_of(pool)
    for number in range(150):  # with bodies, as Redis returns a hash of short values as a whole
        await scheduled.define(f"s{number}", 60_000, body="x" * 100)
    for bucket in range(pool.buckets):
        await redis.read("DEL", pool.keys[0].bucket(bucket))

    async def entries() -> int:
        return sum([await redis.read("ZCARD", pool.keys[0].bucket(bucket)) for bucket in range(pool.buckets)])

    found: list[int] = []
    while not found or found[-1] < 150:
        await sweep.tick()
        found.append(await entries())
    assert 1 < len(found) < 10 and found == sorted(found)
    await check_books(redis, pool)
