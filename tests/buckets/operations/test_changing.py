"""buckets.operations: what matched and was there when it was planned is changed, once, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from buckets.clock import HeldClock
from buckets.job import Job, State
from buckets.operations.store import Filter, Operations
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from tests.buckets.books import check_books
from tests.buckets.jobs import add, delete, get, kick, pop_one, popped_ids, state
from tests.buckets.operations.operating import bury, carried_out, carry_out, planned, reached

HOUR_MS = 3_600_000


async def test_all_dead_letters_of_a_topic_are_kicked(redis: Redis, pool: Pool) -> None:
    ids = [f"d{number}" for number in range(230)]
    await bury(pool, ids)
    await bury(pool, ["other"], "u")
    async with carried_out(pool):
        done = await carry_out(pool, "kick")
    assert (done.count, done.exact, done.done, done.skipped) == (230, True, 230, 0)
    assert sorted(await popped_ids(pool)) == sorted(ids)
    assert await state(pool, "other") == "dead"
    await check_books(redis, pool)


async def test_a_plan_changes_nothing_and_shows_samples(pool: Pool) -> None:
    await bury(pool, ["a", "b"])
    async with carried_out(pool):
        plan = await planned(pool, "delete", Filter(topic="t", reason="none"))
        assert (plan.count, plan.samples) == (0, [])
        plan = await planned(pool, "delete")
    assert (plan.count, sorted(plan.samples)) == (2, ["a", "b"])
    assert await state(pool, "a") == await state(pool, "b") == "dead"


async def test_jobs_of_every_state_are_deleted(redis: Redis, pool: Pool) -> None:
    await bury(pool, ["dead"])
    await add(pool, "reserved")
    await pop_one(pool)
    await add(pool, "ready")
    await add(pool, "delayed", delay_ms=HOUR_MS)
    await add(pool, "other", "u")
    async with carried_out(pool):
        done = await carry_out(pool, "delete")
    assert (done.done, done.skipped) == (4, 0)
    for job_id in ("dead", "reserved", "ready", "delayed"):
        assert await state(pool, job_id) == "deleted"
    assert await state(pool, "other") == "ready"
    await check_books(redis, pool)


async def test_only_jobs_that_match_the_filter_are_changed(pool: Pool, clock: HeldClock) -> None:
    begun = clock.now_us // 1000
    await add(pool, "order:1", delay_ms=HOUR_MS, tags=b'["vip"]')
    await add(pool, "order:2", delay_ms=HOUR_MS)
    await add(pool, "order:3", delay_ms=2 * HOUR_MS, tags=b'["vip"]')
    await add(pool, "mail:1", delay_ms=HOUR_MS, tags=b'["vip"]')
    await add(pool, "order:4", "u", delay_ms=HOUR_MS, tags=b'["vip"]')
    wanted = Filter(topic="t", prefix="order:", tag="vip", due_to=begun + HOUR_MS)
    async with carried_out(pool):
        done = await carry_out(pool, "run", wanted)
        assert (done.count, done.done) == (1, 1)
        assert await popped_ids(pool) == ["order:1"]
        wanted = Filter(topic="*", due_from=begun + HOUR_MS, due_to=begun + HOUR_MS)
        assert (await carry_out(pool, "run", wanted)).done == 3
    assert sorted(await popped_ids(pool, "t", "u")) == ["mail:1", "order:2", "order:4"]
    assert await state(pool, "order:3") == "delayed"


async def test_dead_letters_are_told_apart_by_cause_reason_and_time(pool: Pool, clock: HeldClock) -> None:
    await bury(pool, ["early"])
    clock.advance(1000)
    since = clock.now_us // 1000
    await add(pool, "late")
    await pool.bury((await pop_one(pool)).id, reason="card refused")
    await add(pool, "tries", tries=1)
    await pool.release((await pop_one(pool)).id, reason="card stolen")
    clock.advance(1)
    async with carried_out(pool):
        for wanted, expected in (
            (Filter(topic="t", cause="tries"), ["tries"]),
            (Filter(topic="t", reason="refused"), ["late"]),
            (Filter(topic="t", reason="card"), ["late", "tries"]),
            (Filter(topic="t", died_from=since), ["late", "tries"]),
            (Filter(topic="t", died_to=since - 1), ["early"]),
        ):
            assert sorted((await planned(pool, "kick", wanted)).samples) == expected


async def test_what_came_after_the_plan_is_left_alone(pool: Pool, clock: HeldClock) -> None:
    await bury(pool, ["before", "kicked"])
    clock.advance(10)
    async with carried_out(pool):
        operation = await planned(pool, "delete", Filter(topic="t", state=State.DEAD))
        clock.advance(10)
        await bury(pool, ["after"])
        await kick(pool, "kicked")
        await pool.bury((await pop_one(pool)).id)
        await Operations(pool).start(operation.id, 1000, "ann")
        done = await reached(pool, operation.id, "done")
    assert (done.count, done.done, done.skipped) == (2, 1, 1)
    assert await state(pool, "before") == "deleted"
    assert await state(pool, "kicked") == await state(pool, "after") == "dead"


@pytest.mark.parametrize("shift_ms", [5, -5, 90_000, -90_000, 40 * HOUR_MS])
async def test_each_job_is_shifted_once(redis: Redis, pool: Pool, clock: HeldClock, shift_ms: int) -> None:
    now = clock.now_us // 1000
    delays = {f"j{number}": HOUR_MS + number // 3 for number in range(300)} | {"far": 30 * HOUR_MS}
    for job_id, delay_ms in delays.items():
        await add(pool, job_id, due_ms=now + delay_ms)
    async with carried_out(pool):
        done = await carry_out(pool, "reschedule", shift_ms=shift_ms)
    assert (done.done, done.skipped) == (301, 0)
    for job_id, delay_ms in delays.items():
        assert (await get(pool, job_id)).due == now + delay_ms + shift_ms
    await check_books(redis, pool)


async def test_a_shift_finds_jobs_that_others_hide_at_the_begin_of_a_minute(redis: Redis, clock: HeldClock) -> None:
    pool = await Pool.open(redis, "one", buckets=1, clock=clock)
    due_ms = (clock.now_us // 60_000_000 + 60) * 60_000
    for number in range(100):
        await add(pool, f"a{number}", due_ms=due_ms)
        await add(pool, f"z{number}", "other", due_ms=due_ms)
    async with carried_out(pool):
        done = await carry_out(pool, "reschedule", Filter(topic="t", prefix="a1"), shift_ms=HOUR_MS)
        assert (done.count, done.done, done.skipped) == (11, 11, 0)
        done = await carry_out(pool, "reschedule", Filter(topic="t", due_to=due_ms), shift_ms=HOUR_MS)
    assert (done.count, done.done, done.skipped) == (89, 89, 0)
    assert (await get(pool, "z0")).due == due_ms
    await pool.close()


async def test_what_falls_due_after_the_plan_is_not_deleted_with_the_ready_jobs(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "ready")
    await add(pool, "delayed", delay_ms=1000)
    clock.advance(10)
    async with carried_out(pool):
        operation = await planned(pool, "delete", Filter(topic="t", state=State.READY))
        clock.advance(2000)
        await pool.run("delayed")
        await Operations(pool).start(operation.id, 1000, "ann")
        done = await reached(pool, operation.id, "done")
    assert (done.count, done.done) == (1, 1)
    assert (await state(pool, "ready"), await state(pool, "delayed")) == ("deleted", "ready")


async def test_a_shift_beyond_now_makes_jobs_ready(redis: Redis, pool: Pool) -> None:
    await add(pool, "a", delay_ms=1000)
    async with carried_out(pool):
        await carry_out(pool, "reschedule", shift_ms=-HOUR_MS)
    assert await popped_ids(pool) == ["a"]
    await check_books(redis, pool)


async def test_jobs_are_spread_behind_a_time_by_their_ids(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    now = clock.now_us // 1000
    for number in range(200):
        await add(pool, f"j{number}", delay_ms=number * 100_000 + 1)
    at_ms = now + 2 * HOUR_MS
    async with carried_out(pool):
        done = await carry_out(pool, "reschedule", at_ms=at_ms, spread_ms=HOUR_MS)
        again = await planned(pool, "reschedule", at_ms=at_ms, spread_ms=HOUR_MS)
    there_before = sum(at_ms <= now + number * 100_000 + 1 <= at_ms + HOUR_MS for number in range(200))
    assert (done.count, done.done, done.skipped) == (200 - there_before, 200 - there_before, 0)
    times = [(await get(pool, f"j{number}")).due for number in range(200)]
    assert all(at_ms <= each <= at_ms + HOUR_MS for each in times)
    assert len({*times}) > 150
    assert again.count == 0
    await check_books(redis, pool)


async def test_a_job_that_changed_meanwhile_is_skipped(pool: Pool) -> None:
    await bury(pool, [f"d{number}" for number in range(5)])
    async with carried_out(pool):
        operation = await planned(pool, "kick")
        await delete(pool, "d3")
        await Operations(pool).start(operation.id, 1000, "ann")
        done = await reached(pool, operation.id, "done")
    assert (done.done, done.skipped) == (4, 1)


async def test_a_job_that_a_worker_has_since_its_page_was_read_is_skipped(
    redis: Redis, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply = Operations.apply
    popped: list[Job] = []

    async def apply_later(*arguments: Any) -> Any:
        if not popped:
            popped.append(await pop_one(pool))
        return await apply(*arguments)

    monkeypatch.setattr(Operations, "apply", apply_later)
    await add(pool, "a")
    await add(pool, "b")
    async with carried_out(pool):
        done = await carry_out(pool, "delete")
    assert (done.done, done.skipped) == (1, 1)
    assert [await state(pool, job_id) for job_id in ("a", "b")] == ["reserved", "deleted"]
    await check_books(redis, pool)


async def test_jobs_of_topics_out_of_reach_are_left_alone(pool: Pool) -> None:
    await bury(pool, ["a"], "shop-1")
    await bury(pool, ["b"], "shop-2")
    async with carried_out(pool):
        done = await carry_out(pool, "delete", Filter(topic="shop-*"), within="shop-1")
    assert done.count == done.done == 1
    assert await state(pool, "b") == "dead"


async def test_an_estimate_is_of_the_jobs_that_match(
    pool: Pool, clock: HeldClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("buckets.operations.carrying_out.MOST_COUNTED", 400)
    now = clock.now_us // 1000
    for number in range(1000):
        await add(pool, f"{'ab'[number % 10 == 0]}{number}", due_ms=now + HOUR_MS + number * 1000)
    async with carried_out(pool):
        plan = await planned(pool, "run", Filter(topic="t", prefix="b"))
        assert not plan.exact and 60 <= plan.count <= 140
        plan = await planned(pool, "run", Filter(topic="t", prefix="b", due_from=now + HOUR_MS + 500_000))
        assert not plan.exact and 30 <= plan.count <= 70


async def test_a_topic_whose_counts_another_program_spoilt_holds_up_no_other(redis: Redis, pool: Pool) -> None:
    await bury(pool, ["a"], "u")
    await redis.read("SADD", pool.keys[0].counts("spoilt"), "x")
    await redis.read("ZADD", pool.keys[0].topics, "1", "spoilt")
    async with carried_out(pool):
        assert (await carry_out(pool, "kick", Filter(topic="*"))).done == 1
