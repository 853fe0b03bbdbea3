"""buckets.pool.pool, run.lua, update.lua, rewrite.lua: changing a job that no worker has yet."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from buckets.clock import HeldClock
from buckets.errors import JobQueueError, NotFound, Refused, Reserved, TooLate, WrongState
from buckets.job import Cause, NewJob, State, Tag
from buckets.pool.pool import Moved, Pool
from buckets.redis.client import Redis
from buckets.topics.topics import Topics
from tests.buckets import lives
from tests.buckets.books import check_books
from tests.buckets.conftest import NewPool
from tests.buckets.jobs import add, delete, get, pop_one, popped_ids, state
from tests.buckets.lives import Bring
from tests.kit.waiting import tick_all

DAY_MS = 86_400_000
REFUSED: list[tuple[Bring, type[Refused]]] = [
    (lives.reserved, Reserved),
    (lives.dead, WrongState),
    (lives.never_popped_dead, WrongState),
    (lives.finished, WrongState),
    (lives.deleted, NotFound),
    (lives.unknown, NotFound),
]
CHANGES: list[dict[str, Any]] = [
    {},
    {"delay_ms": 5_000},
    {"delay_ms": 0},
    {"due_ms": 1},
    {"priority": 9},
    {"ttl_ms": 5_000},
    {"body": b"new"},
    {"delay_ms": 5_000, "priority": 9, "ttl_ms": 5_000, "body": b"new"},
]


async def test_a_job_that_somebody_has_or_that_ended_is_not_changed(
    subtests: pytest.Subtests, redis: Redis, new_pool: NewPool, clock: HeldClock
) -> None:
    for change, (bring, refusal) in itertools.product(CHANGES, REFUSED):
        with subtests.test(change=change, bring=bring.__name__, refusal=refusal):
            pool = await new_pool()
            await bring(pool, clock)
            before = await pool.get("a")
            for refused_call in (pool.update("a", **change), pool.run("a")):
                with pytest.raises(refusal) as refused:
                    await refused_call
                assert refused.value.state == (before.state.word if before else None)
            assert await pool.get("a") == before
            await check_books(redis, pool)


async def test_a_ready_job_fired_already_so_its_time_comes_too_late_and_nothing_else_changes(
    subtests: pytest.Subtests, redis: Redis, new_pool: NewPool, clock: HeldClock
) -> None:
    times: list[dict[str, Any]] = [{"delay_ms": 0}, {"delay_ms": 5_000}, {"due_ms": 1}]
    for bring, time in itertools.product((lives.never_popped_ready, lives.ready_again), times):
        with subtests.test(bring=bring.__name__, time=time):
            pool = await new_pool()
            await bring(pool, clock)
            before = await get(pool, "a")
            others: list[dict[str, Any]] = [{}, {"priority": 9, "ttl_ms": 5_000}, {"body": b"new", "priority": 9}]
            for refused_call in [*(pool.update("a", **time, **other) for other in others), pool.run("a")]:
                with pytest.raises(TooLate) as refused:
                    await refused_call
                assert refused.value.state == "ready"
            assert await get(pool, "a") == before
            await check_books(redis, pool)


# Run.


async def test_a_job_that_is_run_is_ready_and_due_now_and_its_old_time_is_nothing(
    redis: Redis, pool: Pool, clock: HeldClock
) -> None:
    await add(pool, "a", delay_ms=60_000, priority=7)
    await add(pool, "b", priority=7)
    clock.advance(1_000)
    now = clock.now_us // 1000
    assert await pool.run("a") == now
    job = await get(pool, "a")
    assert (job.state, job.due, job.next, job.body) == (State.READY, now, now, b'"body"')
    await check_books(redis, pool)
    assert await popped_ids(pool) == ["b", "a"]
    clock.advance(59_000)
    assert await tick_all(pool) == 0
    await check_books(redis, pool)


@pytest.mark.parametrize("delay_ms", [60_000, DAY_MS + 1_000])
async def test_a_run_job_leaves_the_histogram(redis: Redis, pool: Pool, delay_ms: int) -> None:
    await add(pool, "a", delay_ms=delay_ms)
    await pool.run("a")
    assert set((await Topics(pool).stats("t")).due.values()) == {0}
    await check_books(redis, pool)


async def test_the_ttl_of_a_run_job_counts_from_the_run(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", delay_ms=60_000, ttl_ms=1_000)
    await pool.run("a")
    await check_books(redis, pool)
    clock.advance(999)
    assert await tick_all(pool) == 0
    clock.advance(1)
    assert await tick_all(pool) == 1
    assert (await get(pool, "a")).cause is Cause.TTL


async def test_a_job_that_waits_for_its_next_try_may_be_run_and_keeps_its_tries_and_its_step(
    redis: Redis, pool: Pool, clock: HeldClock
) -> None:
    await lives.delayed_again(pool, clock)
    before = await get(pool, "a")
    await pool.run("a")
    job = await pop_one(pool)
    assert (job.attempts, job.kind.step, job.due) == (before.attempts + 1, before.kind.step, clock.now_us // 1000)
    await check_books(redis, pool)


# Update: the time.


async def test_a_delayed_job_fires_at_its_new_time_and_not_at_the_old_one(
    subtests: pytest.Subtests, redis: Redis, new_pool: NewPool, clock: HeldClock
) -> None:
    first_mss: list[tuple[int, int]] = [(60_000, 5_000), (5_000, 60_000), (5_000, 2 * DAY_MS), (9 * DAY_MS, 9)]
    for (first_ms, then_ms), absolute in itertools.product(first_mss, (False, True)):
        with subtests.test(first_ms=first_ms, then_ms=then_ms, absolute=absolute):
            pool = await new_pool()
            await add(pool, "a", delay_ms=first_ms)
            clock.advance(3)
            now = clock.now_us // 1000
            time: dict[str, Any] = {"due_ms": now + then_ms} if absolute else {"delay_ms": then_ms}
            assert await pool.update("a", **time) == Moved("delayed", now + then_ms)
            job = await get(pool, "a")
            assert (job.due, job.next, job.body) == (now + then_ms, now + then_ms, b'"body"')
            await check_books(redis, pool)
            clock.advance(then_ms - 1)
            assert await tick_all(pool) == 0
            clock.advance(1)
            assert await tick_all(pool) == 1
            assert await popped_ids(pool) == ["a"]


async def test_a_new_delay_is_rounded_up_and_never_early(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", delay_ms=60_000)
    clock.now_us += 1
    assert (await pool.update("a", delay_ms=5_000)).due == clock.now_us // 1000 + 5_001
    clock.now_us += 5_000_000
    assert await tick_all(pool) == 0


@pytest.mark.parametrize("time", [{"delay_ms": 0}, {"due_ms": 0}, {"due_ms": 1}])
async def test_a_time_that_is_now_or_over_makes_a_delayed_job_ready_at_once(
    redis: Redis, pool: Pool, clock: HeldClock, time: dict[str, Any]
) -> None:
    await add(pool, "a", delay_ms=60_000, ttl_ms=1_000)
    now = clock.now_us // 1000
    assert await pool.update("a", **time, body=b"new") == Moved("ready", now)
    await check_books(redis, pool)
    clock.advance(60_000)
    assert await tick_all(pool) == 1  # its ttl, from the new due time
    assert (await get(pool, "a")).cause is Cause.TTL


async def test_the_ttl_counts_from_the_new_due_time(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", delay_ms=1_000, ttl_ms=1_000)
    await pool.update("a", delay_ms=10_000)
    clock.advance(10_999)
    await tick_all(pool)
    assert await state(pool, "a") == "ready"
    clock.advance(1)
    await tick_all(pool)
    assert await state(pool, "a") == "dead"


async def test_a_job_moved_a_hundred_times_fires_once(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", delay_ms=1_000)
    for n in range(100):
        await pool.update("a", delay_ms=1_000 + (n * 7_919) % 5_000)
    await check_books(redis, pool)
    clock.advance(10_000)
    assert await tick_all(pool) == 1
    assert await popped_ids(pool) == ["a"]


# Update: the priority.


async def test_a_delayed_job_becomes_ready_at_its_new_priority(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", delay_ms=1_000)
    await add(pool, "b", priority=5)
    due = (await get(pool, "a")).due
    assert await pool.update("a", priority=9) == Moved("delayed", due)
    await check_books(redis, pool)
    clock.advance(1_000)
    await tick_all(pool)
    assert await popped_ids(pool) == ["a", "b"]


async def test_a_ready_job_keeps_its_place_but_for_a_new_priority(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    for job_id in "abcd":
        await add(pool, job_id)
    clock.advance(1)
    due = (await get(pool, "a")).due
    assert await pool.update("a", priority=4, ttl_ms=60_000, body=b"new") == Moved("ready", due)
    assert await pool.update("b", body=b"x" * 100_000) == Moved("ready", due)
    assert await pool.update("c") == Moved("ready", due)
    await check_books(redis, pool)
    assert await pool.update("d", priority=5) == Moved("ready", due)
    await check_books(redis, pool)
    assert await popped_ids(pool) == ["d", "a", "b", "c"]
    await check_books(redis, pool)


@pytest.mark.parametrize("body", [None, b"new"])
async def test_a_ready_job_stands_at_the_back_of_its_new_priority_and_is_handed_out_once(
    redis: Redis, pool: Pool, body: bytes | None
) -> None:
    await add(pool, "a", priority=9, ttl_ms=60_000)
    await add(pool, "b", priority=2)
    for priority in (0, 3, 9, 2):
        await pool.update("a", priority=priority, body=body)
        await check_books(redis, pool)
    assert await popped_ids(pool) == ["b", "a"]
    assert await popped_ids(pool) == []


# Update: the ttl.


async def test_a_ttl_given_to_a_ready_job_is_honoured_by_its_timer(
    subtests: pytest.Subtests, redis: Redis, new_pool: NewPool, clock: HeldClock
) -> None:
    for old_ttl_ms, popped in itertools.product((None, 500, 60_000), (False, True)):
        with subtests.test(old_ttl_ms=old_ttl_ms, popped=popped):
            pool = await new_pool()
            await add(pool, "a", ttl_ms=old_ttl_ms, headers=b'{"a":"b"}')
            if popped:
                await pop_one(pool, worker="w")
                await pool.release("a")
            assert (await pool.update("a", ttl_ms=1_000)).state == "ready"
            await check_books(redis, pool)
            clock.advance(999)
            assert await tick_all(pool) == 0
            clock.advance(1)
            assert await tick_all(pool) == 1
            job = await get(pool, "a")
            assert (job.cause, job.body, job.text(Tag.HEADERS)) == (Cause.TTL, b'"body"', '{"a":"b"}')
            await check_books(redis, pool)


async def test_a_ttl_given_to_a_delayed_job_counts_from_its_due_time(
    redis: Redis, pool: Pool, clock: HeldClock
) -> None:
    await add(pool, "a", delay_ms=5_000)
    await pool.update("a", ttl_ms=1_000)
    await check_books(redis, pool)
    clock.advance(5_000)
    await tick_all(pool)
    await check_books(redis, pool)
    clock.advance(1_000)
    await tick_all(pool)
    assert (await get(pool, "a")).cause is Cause.TTL


async def test_a_ttl_that_is_over_already_ends_the_job_now(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a")
    clock.advance(5_000)
    await pool.update("a", ttl_ms=1_000)
    assert await popped_ids(pool) == []
    assert await tick_all(pool) == 1
    assert (await get(pool, "a")).cause is Cause.TTL
    await check_books(redis, pool)


@pytest.mark.parametrize("body", [None, b"new"])
async def test_a_longer_ttl_brings_back_a_job_that_a_pop_passed_by_before_its_timer_came(
    redis: Redis, pool: Pool, clock: HeldClock, body: bytes | None
) -> None:
    await add(pool, "a", ttl_ms=1_000)
    await add(pool, "keeper")
    clock.advance(1_000)
    assert await popped_ids(pool) == ["keeper"]
    assert (await pool.update("a", ttl_ms=60_000, body=body)).state == "ready"
    await check_books(redis, pool)
    assert await popped_ids(pool) == ["a"]
    await check_books(redis, pool)


async def test_the_timer_hears_of_an_earlier_time_and_of_an_earlier_end(redis: Redis, clock: HeldClock) -> None:
    pool = await Pool.open(redis, "one", buckets=1, clock=clock)
    await add(pool, "a", delay_ms=60_000)
    await add(pool, "b")
    await pool.update("a", delay_ms=9_000)
    assert await pool.due(0, 0) == (0, 9_000_000, [])
    await pool.update("b", ttl_ms=4_000)
    assert await pool.due(0, 0) == (0, 4_000_000, [])


# Update: the body.


async def test_a_body_of_any_size_takes_the_place_of_one_of_any_size(
    subtests: pytest.Subtests, redis: Redis, new_pool: NewPool, clock: HeldClock
) -> None:
    for size, old in itertools.product((0, 1, 80, 5_000, 262_144), (0, 100, 262_144)):
        with subtests.test(size=size, old=old):
            pool = await new_pool()
            fields: dict[str, Any] = {"backoff_ms": (5_000,) * 32, "tags": b'["a"]', "retention_ms": 1_000}
            await add(pool, "plain", body=b"o" * old, delay_ms=1_000)
            await add(pool, "full", body=b"o" * old, delay_ms=1_000, **fields)
            for job_id in ("plain", "full"):
                before = await get(pool, job_id)
                await pool.update(job_id, body=b"n" * size)
                after = await get(pool, job_id)
                assert after == replace(before, raw=before.raw[: before.kind.body_at] + b"n" * size)
                await pool.update(job_id, ttl_ms=60_000, priority=1)
                after = await get(pool, job_id)
                assert (after.body, after.ttl, after.priority) == (b"n" * size, 60_000, 1)
            await check_books(redis, pool)
            clock.advance(1_000)
            await tick_all(pool)
            assert (await pop_one(pool)).body == b"n" * size


async def test_a_job_that_came_back_keeps_its_counts_through_all_changes(
    redis: Redis, pool: Pool, clock: HeldClock
) -> None:
    leases = await lives.delayed_again(pool, clock)
    before = await get(pool, "a")
    await pool.update("a", delay_ms=5_000, priority=9, ttl_ms=60_000, body=b"new")
    job = await get(pool, "a")
    assert (job.attempts, job.deliveries, job.kind.step, job.lease) == (2, 2, before.kind.step, leases[0])
    assert (job.created, job.backoff, job.own_ttr) == (before.created, before.backoff, before.own_ttr)
    await check_books(redis, pool)


async def test_nothing_given_changes_nothing_and_tells_how_it_is(redis: Redis, pool: Pool) -> None:
    await add(pool, "a", delay_ms=5_000)
    before = await get(pool, "a")
    assert await pool.update("a") == Moved("delayed", before.due)
    assert await get(pool, "a") == before
    await check_books(redis, pool)


async def test_an_update_stands_in_its_topics_counts_as_nothing_new(redis: Redis, pool: Pool) -> None:
    await add(pool, "a", delay_ms=5_000)
    await pool.update("a", delay_ms=9_000, priority=1, body=b"new")
    await pool.update("a", delay_ms=0)
    await pool.update("a", priority=2)
    assert (await Topics(pool).stats("t")).totals == {"created": 1}
    assert await delete(pool, "a") == "ready"
    await check_books(redis, pool)


async def test_jobs_of_all_shards_are_changed(redis: Redis, clock: HeldClock) -> None:
    pool = await Pool.open(redis, "many", shards=3, buckets=2, clock=clock)
    ids = [f"order:{n}" for n in range(30)]
    await pool.add([NewJob(job_id, "t", b"", delay_ms=60_000) for job_id in ids])
    for n, job_id in enumerate(ids):
        await (pool.run(job_id) if n % 2 else pool.update(job_id, delay_ms=0, body=b"new"))
    await check_books(redis, pool)
    for job_id in ids:
        lease = (await get(pool, job_id)).lease
        with pytest.raises(JobQueueError):
            await pool.touch(job_id, lease)
    assert sorted(await popped_ids(pool)) == sorted(ids)
    for n, job_id in enumerate(ids):
        await (pool.bury(job_id) if n % 2 else pool.release(job_id))
    await check_books(redis, pool)
