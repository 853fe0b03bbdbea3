"""buckets.schedules.occurrences: while Redis is full, thousands of schedules wait, and nothing else does."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from buckets.clock import HeldClock
from buckets.errors import NoRoom
from buckets.meter import Meter
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from buckets.schedules.occurrences import Occurrences
from buckets.timers.timer import Awake, Timer
from buckets.waiting.notifier import Notifier
from buckets.waiting.waiting import Waiting
from tests.buckets.books import check_books
from tests.buckets.instances import Instance, ended
from tests.buckets.jobs import add, pop
from tests.buckets.schedules.scheduled import Scheduled, plan
from tests.kit.redis_server import RedisServer
from tests.kit.waiting import until

MANY = 2_000


class Outcomes(Meter):
    """What became of occurrences, and how late jobs of other topics became ready."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.late_us: list[int] = []

    def occurred(self, topic: str, outcome: str) -> None:
        self.counts[outcome] += 1

    def promoted(self, topic: str, late_us: int, jobs: int) -> None:
        if topic == "job":
            self.late_us += [late_us] * jobs


async def limit(redis: Redis, maxmemory: int) -> None:
    await redis.read("CONFIG", "SET", "maxmemory-policy", "noeviction", "maxmemory", maxmemory)


async def test_an_occurrence_that_finds_no_room_leaves_everything_as_it_is(
    own_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    outcomes, clock = Outcomes(), HeldClock()
    redis = Redis(own_server.url, meter=outcomes)
    pool = await Pool.open(redis, clock=clock)
    scheduled = Scheduled(pool, clock)
    for name, catch_up in (("last", "last"), ("all", "all"), ("none", "none")):
        await scheduled.define(name, 10_000, catch_up=catch_up)
    before = [await scheduled.record(name) for name in ("last", "all", "none")]
    await limit(redis, 1)
    with pytest.raises(NoRoom):
        await scheduled.define("another", 1_000)
    await scheduled.advance(1_000, 100)
    assert [await scheduled.record(name) for name in ("last", "all", "none")] == before
    assert outcomes.counts.keys() == {"waiting"} and outcomes.counts["waiting"] >= 180
    waits = [record for record in caplog.records if record.getMessage() == "schedule.waits"]
    assert [record.code for record in waits] == ["NO_ROOM"]  # type: ignore[attr-defined]
    assert await scheduled.schedules.undefine(await scheduled.record("none")) == 0
    await check_books(redis, pool)
    await limit(redis, 0)
    await scheduled.advance(1_000)
    assert await scheduled.times("last") == [100_000]
    assert await scheduled.times("all") == [10_000 * n for n in range(1, 11)]
    await check_books(redis, pool)
    await pool.close()
    await redis.close()


@contextlib.asynccontextmanager
async def serving(pool: Pool) -> AsyncIterator[None]:
    """The timers of a service, in this process."""
    notifier = Notifier(pool)
    instance, waiting = Instance(pool, notifier), Waiting(pool, notifier)
    scheduled = Scheduled(pool, HeldClock())
    occurrences = Occurrences(scheduled.schedules, plan)
    async with instance.running():
        timers = [
            asyncio.create_task(Timer(pool, waiting, instance.locks[0], bucket, Awake(0.0), occurrences).run())
            for bucket in range(pool.buckets)
        ]
        try:
            yield
        finally:
            await ended(timers)
            await occurrences.close()
            waiting.close()


async def test_jobs_behind_thousands_of_waiting_schedules_are_ready_in_time(
    own_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    outcomes = Outcomes()
    redis = Redis(own_server.url, meter=outcomes)
    pool = await Pool.open(redis, buckets=1)
    scheduled = Scheduled(pool, HeldClock())
    now = await pool.now_ms()
    for number in range(MANY):
        seen = await scheduled.schedules.see(f"s{number}")
        await scheduled.schedules.define(f"s{number}", seen, b'{"every_ms":3600000}', now, now + 2_000)
    for number in range(40):
        await add(pool, f"j{number}", "job", delay_ms=2_000 + number * 100)
    await limit(redis, 1)
    async with serving(pool):
        await until(lambda: len(outcomes.late_us) == 40, within_s=30)
        assert outcomes.counts["waiting"] >= MANY and outcomes.counts["made"] == 0
        assert sorted(outcomes.late_us)[20] < 250_000
        await limit(redis, 0)
        await until(lambda: outcomes.counts["made"] == MANY, within_s=30)
    assert len([record for record in caplog.records if record.getMessage() == "schedule.waits"]) == 1
    ids = [job.id for _ in range(4) for job in await pop(pool, count=1_000)]
    assert len(ids) == len(set(ids)) == MANY
    await pool.close()
    await redis.close()
