"""Redis's clock goes back, as after a failover to a host whose clock is behind: nothing is early, nothing is undone."""

from __future__ import annotations

from buckets.clock import HeldClock
from buckets.fsck.check import Fsck
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from buckets.topics.topics import Bounds, Topics
from tests.buckets.books import check_books
from tests.buckets.jobs import add, delete, finish, pop_one, popped_ids, state
from tests.kit.waiting import tick_all

BACK_MS = 5_000


async def test_what_was_ready_stays_ready_and_can_be_popped(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    await add(pool, "plain", delay_ms=1_000)
    await add(pool, "mortal", delay_ms=1_000, ttl_ms=60_000)
    clock.advance(1_000)
    await tick_all(pool)
    clock.advance(-BACK_MS)
    assert await tick_all(pool) == 0
    assert [await state(pool, each) for each in ("plain", "mortal")] == ["ready", "ready"]
    assert (await Topics(pool).stats("t")).oldest_ready_ms == 0
    await check_books(redis, pool)
    assert sorted(await popped_ids(pool)) == ["mortal", "plain"]


async def test_what_was_not_due_waits_for_the_clock_to_come_there(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", delay_ms=1_000)
    clock.advance(999 - BACK_MS)
    for ms in (0, BACK_MS):
        clock.advance(ms)
        await tick_all(pool)
        assert await popped_ids(pool) == []
    clock.advance(1)
    await tick_all(pool)
    assert await popped_ids(pool) == ["a"]


async def test_a_lease_ends_by_the_clock_and_a_touch_counts_from_it(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "left", ttr_ms=2_000)
    await add(pool, "touched", ttr_ms=2_000)
    leases = {job.id: job.lease for job in (await pool.pop(["t"], 2)).jobs}
    clock.advance(-BACK_MS)
    await pool.touch("touched", leases["touched"])
    clock.advance(1_999)
    assert await tick_all(pool) == 0
    clock.advance(1)
    await tick_all(pool)
    assert [await state(pool, each) for each in ("left", "touched")] == ["reserved", "ready"]
    clock.advance(BACK_MS)
    await tick_all(pool)
    assert await state(pool, "left") == "ready"


async def test_the_lease_of_a_job_rises_all_the_same_and_the_old_one_is_stale(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a")
    first = await pop_one(pool)
    await pool.release("a", first.lease)
    clock.advance(-BACK_MS)
    second = await pop_one(pool)
    assert second.lease == first.lease + 1
    await pool.release("a", second.lease)
    clock.advance(2 * BACK_MS)
    assert (await pop_one(pool)).lease == clock.now_us


async def test_a_job_that_is_added_anew_has_a_higher_lease_than_its_last_life(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a")
    first = await pop_one(pool)
    await finish(pool, "a")
    clock.advance(-BACK_MS)
    assert (await add(pool, "a")).result == "existing"  # its tombstone holds
    assert (await add(pool, "a", if_exists="replace")).result == "replaced"
    assert (await pop_one(pool)).lease > first.lease


async def test_a_pause_lasts_until_the_clock_has_come_to_its_end(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a")
    await Topics(pool).pause("t", 60_000)
    clock.advance(59_999 - BACK_MS)
    assert await popped_ids(pool) == []
    clock.advance(BACK_MS)
    assert await popped_ids(pool) == []
    clock.advance(1)
    assert await popped_ids(pool) == ["a"]


async def test_a_ttl_ends_by_the_clock(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", ttl_ms=1_000)
    clock.advance(-BACK_MS)
    clock.advance(BACK_MS + 999)
    await tick_all(pool)
    assert await state(pool, "a") == "ready"
    clock.advance(1)
    await tick_all(pool)
    assert await state(pool, "a") == "dead"


async def test_a_sweep_deletes_no_more_than_before(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    await add(pool, "dead")
    await pool.bury((await pop_one(pool)).id)
    await add(pool, "a", "idle", retention_ms=0)
    await delete(pool, "a")
    clock.advance(-BACK_MS)
    topics = Topics(pool)
    assert await topics.bound(0, lambda topic: Bounds(1_000)) == 0
    assert await topics.forget(0, 1_000) == 0
    await check_books(redis, pool)


async def test_a_check_finds_nothing_wrong(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    for number in range(6):
        await add(pool, f"job-{number}", delay_ms=number * 100, retention_ms=60_000)
    clock.advance(300)
    await tick_all(pool)
    await finish(pool, (await pop_one(pool)).id)
    await pop_one(pool)
    clock.advance(-BACK_MS)
    await tick_all(pool)
    report = await (await Fsck.open(redis, clock=clock, rest=0)).run()
    assert not report.findings, report.findings
