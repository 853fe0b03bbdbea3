"""`check` and `health` find that Redis lost live jobs which a journal has, and nothing where none was lost."""

from __future__ import annotations

import time

import pytest

from buckets.events.switch import switch_off
from buckets.job import NewJob
from buckets.keys import shard_of
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from jobqueue.cli.check.check import check
from jobqueue.health.service import Health
from jobqueue.settings import Loaded, Settings
from tests.buckets.jobs import add, finish, pop_one
from tests.jobqueue.journal.reading.drained import opened, switched_on
from tests.jobqueue.journal.restoring.lost import World, world_of
from tests.jobqueue.journal.test_health import judged
from tests.jobqueue.test_commands import engine_on
from tests.kit.redis_server import RedisServer


def known(number: str) -> list[tuple[str, str]]:
    return [("bad", f"the journal knows {number} that Redis does not: docs/redis-lost.md")]


async def test_jobs_that_an_emptied_redis_lost_are_counted_until_they_are_back(
    live_pool: Pool, redis_server: RedisServer, journal_url: str
) -> None:
    async with world_of(live_pool, redis_server.url, journal_url) as world:
        await add(live_pool, "waits", "late", delay_ms=3_600_000)
        await add(live_pool, "held", "now")
        await pop_one(live_pool, "now")
        await add(live_pool, "ready", "now")
        await add(live_pool, "ended", "now")
        await live_pool.delete(["ended"])
        assert await judged(live_pool, journal_url) == []
        await world.drained()
        await live_pool.redis.read("FLUSHALL")  # nobody has founded it again
        assert await judged(live_pool, journal_url) == known("3 live jobs")
        await world.lose()  # its instances have
        assert await judged(live_pool, journal_url) == known("3 live jobs")
        await world.drained()
        assert await judged(live_pool, journal_url) == known("3 live jobs")
        await world.restore(topics="now")
        assert await judged(live_pool, journal_url) == known("1 live job")
        for job in (await live_pool.pop(["now"])).jobs:
            await finish(live_pool, job.id, job.lease)
        assert await judged(live_pool, journal_url) == known("1 live job")
        await world.restore()
        assert await judged(live_pool, journal_url) == []


async def test_what_a_whole_restore_left_is_meant(world: World, sqlite_url: str) -> None:
    await add(world.pool, "overdue")
    await world.drained()
    await world.lose()
    await world.drained()
    assert await judged(world.pool, sqlite_url) == known("1 live job")
    await world.restore(overdue="skip", dry=True)
    assert await judged(world.pool, sqlite_url) == known("1 live job")
    await world.restore(overdue="skip")
    assert await judged(world.pool, sqlite_url) == []
    await add(world.pool, "another")
    await world.drained()
    assert await judged(world.pool, sqlite_url) == []
    await world.lose()
    await world.drained()
    assert await judged(world.pool, sqlite_url) == known("2 live jobs")


@pytest.mark.parametrize("ahead_s", [-3600, 3600])
async def test_it_does_not_matter_how_the_clock_of_the_host_of_a_restore_goes(
    world: World, sqlite_url: str, monkeypatch: pytest.MonkeyPatch, ahead_s: int
) -> None:
    host = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: host() + ahead_s * 1_000_000_000)
    for _ in range(2):
        await add(world.pool, "overdue")
        await world.drained()
        await world.lose()
        await world.drained()
        assert await judged(world.pool, sqlite_url) == known("1 live job")
        await world.restore(overdue="skip")
        assert await judged(world.pool, sqlite_url) == []


async def test_of_many_lost_jobs_some_are_counted(world: World, sqlite_url: str) -> None:
    await world.pool.add([NewJob(f"j{n}", f"t{n % 7}", b"1") for n in range(1_100)])
    await world.drained()
    await world.lose()
    assert await judged(world.pool, sqlite_url) == known("at least 1,000 live jobs")
    await world.restore(topics="t0 t1 t2 t3")
    assert await judged(world.pool, sqlite_url) == known("471 live jobs")


async def test_only_what_a_lost_shard_had_is_counted(redis: Redis, redis_server: RedisServer, sqlite_url: str) -> None:
    pool = await Pool.open(redis, shards=3, buckets=1)
    async with world_of(pool, redis_server.url, sqlite_url) as world:
        await pool.add([NewJob(f"j{n}", "t", b"1") for n in range(60)])
        await world.drained()
        had = sum(shard_of(f"j{n}", 3) == 1 for n in range(60))
        await redis.read("DEL", *await redis.read("KEYS", f"{pool.keys[1].tag}*"))
        await pool.ensure_meta(1)
        assert await judged(pool, sqlite_url) == known(f"{had} live jobs")
        await world.drained()
        assert await judged(pool, sqlite_url) == known(f"{had} live jobs")
        await world.restore()
        assert await judged(pool, sqlite_url) == []
    await pool.close()


async def test_jobs_that_redis_knows_are_not_lost(world: World, sqlite_url: str) -> None:
    pool = world.pool
    for name in ("stays", "purged", "deleted", "finished"):
        await add(pool, name, name)
    await world.drained()
    await pool.redis.read("DEL", pool.keys[0].events)  # the stream alone is gone, and with it what the reader lacks
    await switched_on(pool)
    assert await judged(pool, sqlite_url) == []
    await world.drained()
    assert await judged(pool, sqlite_url) == []
    await switch_off(pool, 0)
    assert await judged(pool, sqlite_url) == []
    await switch_off(pool, 0, drop=True)
    assert await judged(pool, sqlite_url) == []


async def test_a_reader_that_lags_loses_nothing(live_pool: Pool, redis_server: RedisServer, sqlite_url: str) -> None:
    await switched_on(live_pool)
    await live_pool.add([NewJob(f"j{n}", "t", b"1", retention_ms=0) for n in range(3)])
    async with opened(live_pool, sqlite_url, redis_server.url) as journal:
        await journal.drain()
    await live_pool.delete(["j0"])
    await live_pool.finish([(job.id, job.lease) for job in (await live_pool.pop(["t"], 1)).jobs])
    assert await judged(live_pool, sqlite_url) == []


async def test_the_service_and_the_command_tell_the_same(
    world: World, redis_server: RedisServer, sqlite_url: str
) -> None:
    await add(world.pool, "lost")
    await world.drained()
    await world.lose()
    chosen = {"redis": redis_server.url, "journal": sqlite_url, "port": 0}
    told = [str(finding) async for finding in check(chosen, None)]
    assert "bad  jobs: the journal knows 1 live job that Redis does not: docs/redis-lost.md" in told
    settings = Settings(journal=sqlite_url)
    health = Health(engine_on(world.pool), world.pool, lambda: Loaded(settings, {}), lambda: {})
    findings = (await health.examine())["findings"]
    assert next(each["words"] for each in findings if each["subject"] == "jobs") == known("1 live job")[0][1]
